"""A communicator's calls on arrays of a device: processes that reach each other by CUDA IPC.

With the fake driver and, if there is one, on the device: all processes share device 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

import fake_driver
import ranks
from gc3 import CommError, cuda


@pytest.fixture(params=fake_driver.DRIVERS)
def driver(request: pytest.FixtureRequest) -> Mapping[str, str]:
    """The environment of ranks."""
    return {"FAKE_CUDA": "mapped=1", **request.param}


def test_every_collective(driver: Mapping[str, str]) -> None:
    ranks.run(ranks.program("device_every_collective"), 3, driver)


def test_tensors_with_dlpack(driver: Mapping[str, str]) -> None:
    ranks.run(ranks.program("device_dlpack"), 2, driver)


def test_a_loaded_program_and_a_custom_one(driver: Mapping[str, str]) -> None:
    ranks.run(ranks.program("device_programs"), 2, driver)


def test_a_custom_program_writes_only_to_its_output(driver: Mapping[str, str]) -> None:
    ranks.run(ranks.program("device_custom_program"), 2, driver)


def test_a_call_while_another_thread_compiles(driver: Mapping[str, str]) -> None:
    ranks.run(ranks.program("device_while_compiling"), 1, driver)


def in_vain(driver: Mapping[str, str]) -> str:
    """Seconds that a rank waits for one that does not come.

    On a device, contexts and kernels are created one after the other, and ranks take turns, so ranks may come late.
    """
    return "2" if driver["GC3_CUDA_DRIVER"] else "8"


def test_a_rank_that_does_not_join_is_an_error_within_the_deadline(driver: Mapping[str, str], tmp_path: Path) -> None:
    timeout = in_vain(driver)
    environment = {**driver, "GC3_COMM_TIMEOUT": timeout}
    results = ranks.start(ranks.program("device_rank_missing"), 2, environment, [tmp_path / "told"]).finish()
    assert [status for status, _ in results] == [0, 0], results
    assert results[0][1].count(f"a threadblock has waited for {timeout} s on the device") == 2
    assert "waits for a message from rank 1" in results[0][1]


@pytest.mark.python_only
@pytest.mark.parametrize("call", ["first", "later"])
def test_types_that_differ_by_rank_are_told_at_the_deadline(driver: Mapping[str, str], call: str) -> None:
    """No process waits for another one in a call, so nothing could tell it earlier; no data is taken."""
    environment = {**driver, "GC3_COMM_TIMEOUT": in_vain(driver)}
    results = ranks.start(ranks.program("device_types_differ"), 2, environment, [call]).finish()
    assert [status for status, _ in results] == [0, 0], results
    for rank, name in enumerate(("float32", "int32")):
        said = results[rank][1]
        assert f"the last call of rank {rank} is of blocks of 5 {name} (sum): ranks whose calls differ wait" in said
        assert said.count("GC3-R003") == 2


def test_one_sided_programs(driver: Mapping[str, str]) -> None:
    ranks.run(ranks.program("device_one_sided"), 3, driver, ["right"])


@fake_driver.needs_library
@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("differ", ["is not that of rank 1", "is not that of rank 0, rank 2", "is not that of rank 1"]),
        ("other", ["rank 1 runs another program than rank 0", "than rank 1", "than rank 2"]),
        ("grows", ["was waiting in call 2", "GC3-R0", "was waiting in call 2"]),
        ("missing", ["was waiting in call 2", "", ""]),
    ],
)
def test_one_sided_calls_that_differ(how: str, said: list[str], tmp_path: Path) -> None:
    driver = {"FAKE_CUDA": "mapped=1", **fake_driver.ENVIRONMENT}
    environment = {**driver, "GC3_COMM_TIMEOUT": in_vain(driver)}
    arguments = [how, tmp_path / "told"]
    results = ranks.start(ranks.program("device_one_sided"), 3, environment, arguments).finish()
    assert [status for status, _ in results] == [0] * 3, results
    for (_, text), expected in zip(results, said, strict=True):
        assert expected in text
        assert "Traceback" not in text
    if how in ("differ", "other"):
        assert all("GC3-R010" in text for _, text in results)


@fake_driver.needs_library
def test_memory_for_a_larger_one_sided_call_that_cannot_be_opened() -> None:
    environment = {**fake_driver.ENVIRONMENT, "FAKE_CUDA": "mapped=1"}
    for rank, text in enumerate(ranks.run(ranks.program("device_one_sided"), 3, environment, ["unreached"])):
        who = "" if rank == 1 else "rank 1: "
        assert f"GC3-R016 CUDA reports an error: {who}the memory of another process" in text


@fake_driver.needs_library
def test_a_graph_beside_calls_in_other_memory_is_told() -> None:
    environment = {**fake_driver.ENVIRONMENT, "FAKE_CUDA": "mapped=1"}
    texts = ranks.run(ranks.program("device_one_sided"), 3, environment, ["replayed"])
    for rank, text in enumerate(texts):
        assert text.startswith("no error [6.0]\n")
        assert f"call 4 of the one-sided program 'allpairs_allreduce' on rank {rank} is not that of" in text


def test_arrays_that_cannot_be_used(driver: Mapping[str, str]) -> None:
    ranks.run(ranks.program("device_unusable_arrays"), 2, driver)


def test_without_a_driver_there_is_one_message() -> None:
    ranks.run(
        ranks.program("device_without_driver"), 2, {"FAKE_CUDA": "mapped=1", "GC3_CUDA_DRIVER": "libno-such-driver.so"}
    )


WINDOWS = {
    "FAKE_CUDA": "mapped=1",
    **fake_driver.ENVIRONMENT,
    "GC3_CUDA_WINDOWS": "1",
    "GC3_NCCL": str(fake_driver.LIBRARY),
}


@fake_driver.needs_library
def test_devices_are_reached_through_windows() -> None:
    for text in ranks.start(ranks.program("device_windows"), 3, WINDOWS).finish():
        assert text[0] == 0, text
        assert "between devices: windows of NCCL 2.30.7" in text[1]
    ranks.run(ranks.program("device_one_sided"), 3, WINDOWS, ["right"])


@fake_driver.needs_library
def test_one_sided_programs_through_a_switch() -> None:
    """Sums and copies of all ranks go through it where it is: one that does nothing makes the results wrong."""
    for multicast, said in ((0, "windows of NCCL 2.30.7\n"), (1, ", which a switch reaches at once")):
        environment = {**WINDOWS, "FAKE_CUDA": f"mapped=1 multicast={multicast}"}
        for text in ranks.run(ranks.program("device_one_sided"), 3, environment, ["switch"]):
            assert said in text
    environment = {**WINDOWS, "FAKE_CUDA": "mapped=1 multicast=2"}
    for text in ranks.run(ranks.program("device_one_sided"), 3, environment, ["broken"]):
        assert "Mismatched elements" in text


@fake_driver.needs_library
@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"FAKE_CUDA": "nccl=22809"}, "(NCCL 2.28.9, the first with pointers to windows is 2.29.0)"),
        *(
            pytest.param(*case, marks=pytest.mark.python_only)
            for case in (
                ({"FAKE_CUDA": "windows=0"}, "rank 0: NCCL makes no symmetric windows here"),
                ({"FAKE_CUDA": "lsa=0"}, "does not reach the window of rank 0 by loads and stores"),
            )
        ),
        (
            {"FAKE_CUDA": "fail=ncclCommInitRankConfig:1"},
            "the ranks' NCCL communicator: invalid usage, said by the fake NCCL",
        ),
    ],
)
def test_without_windows_it_is_ipc_and_said_why(changes: dict[str, str], text: str) -> None:
    for status, said in ranks.start(ranks.program("device_windows"), 2, {**WINDOWS, **changes}).finish():
        assert status == 0, said
        assert "between devices: CUDA IPC (" in said
        assert text in said


@fake_driver.needs_library
def test_nccl_that_is_missing_is_an_error_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GC3_NCCL", "libno-such-nccl.so")
    with pytest.raises(CommError, match="GC3-R020"):
        cuda.nccl()
    monkeypatch.setenv("GC3_NCCL", str(fake_driver.LIBRARY))
    assert cuda.nccl().version == 23007
