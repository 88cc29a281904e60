"""Changes under a communicator while it lives: privileges, memory, descriptors."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import ranks

# After this, rank 0 cannot read the memory of rank 1, or rank 1 that of rank 0. Root may read all processes, so the
# user id changes.
HIDE = """
def hide():
    if os.geteuid() == 0:
        os.setresuid(65534, 65534, 65534)
    else:
        import ctypes
        assert ctypes.CDLL(None).prctl(4, 0) == 0  # PR_SET_DUMPABLE
"""


@pytest.fixture(autouse=True)
def ranks_read_each_others_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether that is faster on this machine or not."""
    monkeypatch.setenv("GC3_PROBE", "0")


@pytest.mark.parametrize("hidden", [0, 1])
@pytest.mark.parametrize("count", [50_000, 3_000_017])
def test_a_rank_that_gives_up_its_privileges_goes_on(hidden: int, count: int) -> None:
    """Also within a call: while rank 0 waits in it, or has already lent its data."""
    begin = time.monotonic()
    ranks.run(
        HIDE
        + f"""
comm = gc3.init()
x = np.arange({count}, dtype=np.float32)
assert (comm.all_reduce(x + r) == 2 * x + 1).all()
for late in (0, 1):
    if r == {hidden} and late == 0:
        hide()
    if r == late:
        time.sleep(0.2)
    got = x + r
    comm.broadcast(got, root=1)
    assert (got == x + 1).all()
    assert (comm.all_gather(x + r)[{count}:] == x + 1).all()
    for _ in range(3):
        assert (comm.all_reduce(x + r) == 2 * x + 1).all()
comm.close()
""",
        2,
    )
    assert time.monotonic() - begin < 60


@pytest.mark.parametrize("many", [3, 5])
def test_one_of_many_ranks_gives_up_its_privileges(many: int) -> None:
    ranks.run(
        HIDE
        + """
comm = gc3.init()
x = np.arange(300_000, dtype=np.int64)
for turn in range(6):
    if turn == 2 and r == 1:
        hide()
    assert (comm.all_reduce(x + r) == n * x + n * (n - 1) // 2).all()
    assert (comm.all_to_all(np.repeat(x[: n * 10_000], 2)) >= 0).all()
    part = comm.broadcast(x + r, root=turn % n)
    assert (part == x + turn % n).all()
""",
        many,
    )


def test_data_that_is_no_more_is_named_at_once(tmp_path: Path) -> None:
    """The root's data is a file that is shortened: only the rank that reads the data can notice."""
    file = tmp_path / "data"
    begin = time.monotonic()
    told = ranks.run(
        f"""
comm = gc3.init()
comm.broadcast(np.ones(1_000_000, np.float32), root=0)
x = np.zeros(1_000_000, np.float32)
if r == 0:
    x.tofile({str(file)!r})
    x = np.memmap({str(file)!r}, np.float32, "r+")
    os.truncate({str(file)!r}, 0)
try:
    comm.broadcast(x, root=0)
    print("well")
except gc3.Gc3Error as problem:
    print(problem)
""",
        2,
    )
    assert time.monotonic() - begin < 60
    for text in told:
        assert "cannot read the data of rank 0 (process " in text
        assert "Bad address" in text


@pytest.mark.parametrize("count", [1, 2])
def test_close_gives_descriptors_back_at_once(count: int) -> None:
    """Without the cyclic garbage collection, which may run much later, and with arrays that are kept."""
    ranks.run(
        """
import gc, resource
gc.disable()
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
held = []
for i in range(126 if n == 1 else 60):
    comm = gc3.init()
    part = comm.split(0)
    comm.all_reduce(np.ones(3))
    part.broadcast(np.ones(100_000), root=0)
    array = gc3.empty(1000, np.float32) if i % 2 else part.empty(1000, np.float32)
    array[:] = i
    part.close()
    comm.close()
    held.append((comm, part, array))
    if i == 2:
        files = len(os.listdir("/proc/self/fd"))
assert len(os.listdir("/proc/self/fd")) <= files
assert all((array == i).all() for i, (_, _, array) in enumerate(held))
""",
        count,
    )


def test_ranks_of_a_tool_get_their_data_where_proc_shows_nothing_of_it() -> None:
    """Their parent may not be looked into, not even by root's processes, which it takes that privilege from."""
    ranks.run(
        """
import ctypes, subprocess
from gc3.comm.tool_ranks import Ranks
prctl = ctypes.CDLL(None).prctl
prctl(24, 19)  # PR_CAPBSET_DROP, CAP_SYS_PTRACE: refused to those who have it not
assert prctl(4, 0) == 0  # PR_SET_DUMPABLE
looks = "import os, sys; os.stat(f'/proc/{os.getppid()}/fd/1')"
assert subprocess.run([sys.executable, "-c", looks], stderr=subprocess.DEVNULL).returncode != 0
program = gc3.compile(gc3.algorithms.load("ring_allreduce"), R=2)
with Ranks(program) as started:
    outputs = [np.empty(10, np.float32) for _ in range(2)]
    started.time([np.ones(10, np.float32)] * 2, outputs=outputs, warmup=0, iterations=1)
assert all((out == 2).all() for out in outputs)
""",
        1,
    )


def test_what_the_system_refuses_to_a_rank_of_a_tool_is_one_message() -> None:
    """There, addresses for its part of the data."""
    ranks.run(
        """
import resource
from gc3.comm.tool_ranks import Ranks
program = gc3.compile(gc3.algorithms.load("ring_allreduce"), R=2)
with Ranks(program) as started:
    for process in started.processes:
        resource.prlimit(process, resource.RLIMIT_AS, (1 << 20, 1 << 20))
    try:
        started.time([np.ones(1 << 22, np.float32)] * 2, warmup=0, iterations=1)
    except gc3.Gc3Error as problem:
        assert problem.code == "GC3-R013", problem.code
        assert "Cannot allocate memory" in str(problem)
    else:
        raise AssertionError("nothing was refused")
""",
        1,
    )
