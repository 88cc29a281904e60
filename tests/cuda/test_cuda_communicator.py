"""A communicator's calls on arrays of a device: processes that reach each other by CUDA IPC.

With the fake driver and, if there is one, on the device: all processes share device 0.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

import fake_driver
import ranks
from gc3 import CommError, cuda

HERE = {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])}

HEAD = """
import ml_dtypes
from fake_driver import DlpackArray, InterfaceArray
comm = gc3.init()

def there(values, dtype=np.float32):
    return InterfaceArray(np.array(values, dtype))
"""


@pytest.fixture(params=fake_driver.DRIVERS)
def driver(request: pytest.FixtureRequest) -> Mapping[str, str]:
    """The environment of ranks."""
    return {**HERE, **request.param}


def run(code: str, count: int, environment: Mapping[str, str]) -> None:
    ranks.run(HEAD + code, count, environment)


def test_every_collective(driver: Mapping[str, str]) -> None:
    run(
        """
def check(x, wanted):
    comm.synchronize()
    assert np.array_equal(x.memory.content, wanted), (x.memory.content, wanted)

size = 1000 * n
mine, everyone = np.arange(size) + r, [np.arange(size) + s for s in range(n)]
x, y = there(mine), there(np.zeros(size))
assert comm.all_reduce(x, out=y) is y
check(y, sum(everyone)); check(x, mine)
comm.all_reduce(x, "max", out=x)
check(x, everyone[-1])
x, y = there(mine), there(np.zeros(n * size))
comm.all_gather(x, out=y)
check(y, np.concatenate(everyone))
y = there(np.zeros(1000))
comm.reduce_scatter(x, out=y)
check(y, sum(everyone)[1000 * r:1000 * (r + 1)])
y = there(np.zeros(size))
comm.all_to_all(x, out=y)
check(y, np.concatenate([e[1000 * r:1000 * (r + 1)] for e in everyone]))
comm.broadcast(x, root=1)
check(x, everyone[1])
x, y = there(mine), there(np.zeros(size))
assert (comm.reduce(x, root=1, out=y) is y) == (r == 1)
if r == 1: check(y, sum(everyone))
y = there(np.zeros(1000))
comm.scatter(x if r == 0 else None, out=y)
check(y, everyone[0][1000 * r:1000 * (r + 1)])
handle = comm.all_reduce_async(x, out=there(np.zeros(size)))
check(handle.wait(), sum(everyone))
host = np.ones(3)  # calls on the host's memory go on between them
assert comm.all_reduce(host).tolist() == [n] * 3
comm.close()
""",
        3,
        driver,
    )


def test_tensors_with_dlpack(driver: Mapping[str, str]) -> None:
    run(
        """
for name, kind in (("bfloat16", 4), ("float8_e5m2", 12), ("int64", 0)):
    x = DlpackArray(np.full((2, 3), r + 1).astype(np.dtype(getattr(ml_dtypes, name, name))), kind)
    y = comm.all_reduce(x)
    comm.synchronize()
    assert isinstance(y, DlpackArray) and y.memory.content.tolist() == [[3] * 3] * 2
""",
        2,
        driver,
    )


def test_a_loaded_program_and_a_custom_one(driver: Mapping[str, str]) -> None:
    run(
        """
program = gc3.compile(gc3.algorithms.load("ring_allreduce"), R=2, protocol="LL", in_place=True)
x = there(np.ones(5) + r)
comm.run(program, x, out=x)
assert "between devices: CUDA IPC (rank 0: GC3_CUDA_WINDOWS is 0)" in str(comm.explain("allreduce", 5))
comm.load(program)
comm.all_reduce(x, out=x)
comm.synchronize()
assert x.memory.content.tolist() == [6.0] * 5
""",
        2,
        driver,
    )


def test_a_custom_program_writes_only_to_its_output(driver: Mapping[str, str]) -> None:
    run(
        """
data = gc3.collectives.custom("sum", inputs=[2, 2], outputs=[0, 1], alias=[("input", 0)] * 2,
                              expect=lambda *_: [(0, 0), (0, 1), (1, 0), (1, 1)])
program = gc3.SourceProgram("busy", data, in_place=True)
with program:
    mine = gc3.chunk(0, "in", 1).reduce(gc3.chunk(0, "in", 0))
    yours = gc3.chunk(1, "in", 1).reduce(mine)
    gc3.chunk(1, "out", 0).reduce(yours)
program = gc3.compile(program)
x = there(np.arange(10.0) + r)
class Part:  # the first half of x
    __cuda_array_interface__ = {**x.__cuda_array_interface__, "shape": (5,)}
    def __init__(self, **changes): self.__cuda_array_interface__ = {**Part.__cuda_array_interface__, **changes}
refused = [dict(out=None, count=5), dict(out=there(np.zeros(4)), count=5)] if r == 1 else [dict(count=4)]
if r == 1: refused.append(dict(out=Part(data=(x.memory.address, True)), count=5))
for wrong in refused:
    try:
        comm.run(program, x, **wrong)
    except gc3.UserError as problem:
        assert problem.code == "GC3-R001", problem
    else:
        raise AssertionError(wrong)
comm.run(program, x, out=None if r == 0 else Part())
comm.synchronize()
given = [np.arange(10.0) + s for s in range(2)]
wanted = given[r].copy()
if r == 1: wanted[:5] = sum(g[:5] + g[5:] for g in given)
assert np.array_equal(x.memory.content, wanted), x.memory.content
""",
        2,
        driver,
    )


def test_a_rank_that_does_not_join_is_an_error_within_the_deadline(driver: Mapping[str, str]) -> None:
    # On a device, contexts and kernels are created one after the other, and ranks take turns, so ranks may come late.
    patience = "0.8" if driver["GC3_CUDA_DRIVER"] else "8"
    results = ranks.start(
        HEAD
        + f"patience = {patience}"
        + """
x = there(np.ones(5))
comm.all_reduce(x, out=x)
comm.synchronize()
if r == 0:
    for _ in range(2):
        try:
            comm.all_reduce(x, out=x)
            comm.synchronize()
        except gc3.CommError as problem:
            print(problem)
else:
    time.sleep(2 * patience)
""",
        2,
        {**driver, "GC3_COMM_TIMEOUT": patience},
    ).finish()
    assert [status for status, _ in results] == [0, 0], results
    assert results[0][1].count(f"a threadblock has waited for {patience} s on the device") == 2
    assert "waits for a message from rank 1" in results[0][1]


def test_arrays_that_cannot_be_used(driver: Mapping[str, str]) -> None:
    run(
        """
def refused(call, text):
    try:
        call()
    except gc3.UserError as problem:
        assert text in str(problem), problem
    else:
        raise AssertionError(text)

x = there(np.ones((4, 4)))
refused(lambda: comm.all_reduce(x), "makes no array like itself: give out=")
refused(lambda: comm.all_reduce(x, out=np.ones((4, 4), np.float32)), "the input is on a device and out is not")
refused(lambda: comm.all_reduce(InterfaceArray(np.ones((4, 4)), strides=(8, 32)), out=x), "not contiguous")
refused(lambda: comm.all_reduce(DlpackArray(np.ones(4), 3)), "DLPack's type (3, 64 bits)")
refused(lambda: comm.all_reduce(InterfaceArray(np.zeros(4, np.longdouble)), out=x), "GC3-M002")
comm.barrier()
""",
        2,
        driver,
    )


def test_without_a_driver_there_is_one_message() -> None:
    run(
        """
class Claims:
    __cuda_array_interface__ = {"data": (4096, False), "shape": (3,), "typestr": "<f4", "version": 3}

try:
    comm.all_reduce(Claims(), out=Claims())
except gc3.UserError as problem:
    assert "GC3-R015" in str(problem)
else:
    raise AssertionError
""",
        2,
        {**HERE, "GC3_CUDA_DRIVER": "libno-such-driver.so"},
    )


WINDOWS = {**HERE, **fake_driver.ENVIRONMENT, "GC3_CUDA_WINDOWS": "1", "GC3_NCCL": str(fake_driver.LIBRARY)}
ON_TWO_RANKS = """
x = there(np.arange(3000) + r)
before = comm.explain("allreduce", 3000)
assert before.devices == "" and "devices" not in str(before)
for protocol in ("Simple", "LL128"):
    program = gc3.compile(gc3.algorithms.load("ring_allreduce"), R=n, protocol=protocol, in_place=True)
    comm.run(program, x, out=x)
comm.synchronize()
assert np.array_equal(x.memory.content, n * sum(np.arange(3000) + s for s in range(n)))
print(comm.explain("allreduce", 3000))
comm.close()
"""


@fake_driver.needs_library
def test_devices_are_reached_through_windows() -> None:
    for text in ranks.start(HEAD + ON_TWO_RANKS, 3, WINDOWS).finish():
        assert text[0] == 0, text
        assert "between devices: windows of NCCL 2.30.7" in text[1]


@fake_driver.needs_library
@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"FAKE_CUDA": "nccl=22809"}, "(NCCL 2.28.9, the first with pointers to windows is 2.29.0)"),
        ({"FAKE_CUDA": "windows=0"}, "rank 0: NCCL makes no symmetric windows here"),
        ({"FAKE_CUDA": "lsa=0"}, "does not reach the window of rank 0 by loads and stores"),
        (
            {"FAKE_CUDA": "fail=ncclCommInitRankConfig:1"},
            "the ranks' NCCL communicator: invalid usage, said by the fake NCCL",
        ),
    ],
)
def test_without_windows_it_is_ipc_and_said_why(changes: dict[str, str], text: str) -> None:
    for status, said in ranks.start(HEAD + ON_TWO_RANKS, 2, {**WINDOWS, **changes}).finish():
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
