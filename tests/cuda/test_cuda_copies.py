"""Programs whose messages copy engines move, on devices of one process and between processes.

cpp/gc3/runtime/cuda/copy_lanes_test.cc has the rest: results at many sizes, and ranks that stop.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

import fake_driver
import ranks

LINE = ("direct_alltoall:R=4,protocol=Copy", "--size", "40KiB", "--engine", "cuda")


@pytest.fixture(params=fake_driver.DRIVERS)
def driver(request: pytest.FixtureRequest) -> Mapping[str, str]:
    """The environment of ranks."""
    return {"FAKE_CUDA": "mapped=1", **request.param}


@fake_driver.needs_library
@pytest.mark.parametrize(
    ("settings", "engine"),
    [
        ("sms=1 blocks=1", "cuda"),  # room for one threadblock, of 28
        pytest.param("channels=1", "cuda", marks=pytest.mark.python_only),  # all streams of the device in one queue
        pytest.param("devices=2 channels=1", "cuda:devices=0+1", marks=pytest.mark.python_only),
        ("devices=2", "cuda:devices=0+1"),
    ],
)
def test_copies_need_no_threadblocks_and_no_queues_of_their_own(settings: str, engine: str) -> None:
    done = fake_driver.gc3("run", *LINE[:-1], engine, settings=settings)
    assert done.returncode == 0, done.stderr
    assert "protocol Copy: messages are moved by copy engines" in done.stderr


@fake_driver.needs_library
def test_without_streams_that_wait_threadblocks_store_the_messages() -> None:
    done = fake_driver.gc3("run", *LINE, settings="values=0")
    assert done.returncode == 0, done.stderr
    assert "by threadblocks: not every device lets streams wait for values" in done.stderr
    assert "copy" not in fake_driver.gc3("run", "direct_alltoall:R=4", "--engine", "cuda").stderr


@fake_driver.needs_library
@pytest.mark.parametrize(
    "failure",
    [
        "cuStreamBatchMemOp_v2:20",
        "cuMemcpyDtoDAsync_v2:1",
        *(
            pytest.param(failure, marks=pytest.mark.python_only)
            for failure in (
                "cuStreamBatchMemOp_v2:1",
                "cuStreamBatchMemOp_v2:40",
                "cuMemcpyDtoDAsync_v2:20",
                "cuLaunchKernel:1",
                "cuStreamWaitEvent:1",
            )
        ),
    ],
)
def test_an_operation_that_fails_is_an_error_and_the_engine_can_be_used_again(failure: str) -> None:
    code = """
import numpy as np
import gc3
program = gc3.compile(gc3.algorithms.load("direct_alltoall"), R=3, protocol="Copy")
engine = gc3.cuda.Engine(program)
for _ in range(3):
    try:
        print(engine.run([np.arange(3, dtype=np.float32) + 10 * rank for rank in range(3)])[1])
    except gc3.CommError as problem:
        print(problem.diagnostics[0].code)
"""
    done = fake_driver.python(code, settings=f"fail={failure}")
    assert sorted(done.stdout.splitlines()) == ["GC3-R016", *["[ 1. 11. 21.]"] * 2], done.stderr


def test_copies_between_processes(driver: Mapping[str, str]) -> None:
    ranks.run(ranks.program("device_copies"), 3, driver)


@fake_driver.needs_library
@pytest.mark.python_only
def test_a_process_without_streams_that_wait_is_respected_by_all() -> None:
    for status, said in ranks.start(
        ranks.program("device_copies"), 2, fake_driver.ENVIRONMENT, ["threadblocks"]
    ).finish():
        assert status == 0, said


def test_a_process_that_ends_is_an_error_for_those_who_wait_for_its_copies(driver: Mapping[str, str]) -> None:
    timeout = "2" if driver["GC3_CUDA_DRIVER"] else "8"  # on a device, ranks may come late
    results = ranks.start(ranks.program("device_copies_lost"), 2, {**driver, "GC3_COMM_TIMEOUT": timeout}).finish()
    assert [status for status, _ in results] == [0, 9], results
    assert f"a threadblock has waited for {timeout} s on the device" in results[0][1]
    assert "waits for a message from rank 1" in results[0][1]
