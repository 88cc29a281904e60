"""Communicators in a user's scripts, with each rank a process."""

import json
import os
import signal
import subprocess
import sys
import time
import weakref
from pathlib import Path

import numpy as np
import pytest

import gc3
import ranks
from gc3 import errors

EVERY_COLLECTIVE = """
with gc3.init() as comm:
    assert (comm.rank, comm.size) == (r, n)
    for c in (0, 1, 5, 1000, 70001):
        base = np.arange(c, dtype=np.float32)
        x = base + r
        total = base * n + n * (n - 1) // 2
        joined = np.concatenate([base + k for k in range(n)])
        full = np.arange(c * n, dtype=np.int64)
        mine = full[r * c : (r + 1) * c]
        swapped = np.concatenate([mine + k for k in range(n)])
        assert np.array_equal(comm.all_reduce(x), total)
        assert np.array_equal(x, base + r)
        assert np.array_equal(comm.all_reduce(x, op="max"), base + n - 1)
        y = x.copy()
        assert comm.all_reduce(y, out=y) is y and np.array_equal(y, total)
        assert np.array_equal(comm.all_gather(x), joined)
        g = np.zeros(n * c, np.float32)
        g[r * c : (r + 1) * c] = x
        comm.all_gather(g[r * c : (r + 1) * c], out=g)
        assert np.array_equal(g, joined)
        assert np.array_equal(comm.reduce_scatter(full), n * mine)
        assert np.array_equal(comm.all_to_all(full + r), swapped)
        y = full + r
        comm.all_to_all(y, out=y)
        assert np.array_equal(y, swapped)
        for root in {0, n - 1}:
            y = x.copy()
            assert np.array_equal(comm.broadcast(y, root), base + root)
            for got, want in ((comm.reduce(x, root=root), total), (comm.gather(x, root), joined)):
                assert (got is None) if r != root else np.array_equal(got, want)
            part = comm.scatter(full if r == root else None, root, out=np.empty(c, np.int64))
            assert np.array_equal(part, mine)
        before = comm.all_to_next(x)
        assert before is None if r == 0 else np.array_equal(before, base + r - 1)
    m = comm.all_gather(np.full((2, 3), r))
    assert m.shape == (2 * n, 3) and m[2 * n - 1, 2] == n - 1
    assert comm.all_reduce(1.5) == 1.5 * n
    comm.barrier()
"""


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 8])
def test_every_collective(n: int) -> None:
    ranks.run(EVERY_COLLECTIVE, n)


def test_any_buffer_and_every_type() -> None:
    ranks.run(
        """
import array
from gc3.datatypes import DTYPES
with gc3.init() as comm:
    for dtype in DTYPES.values():
        assert (comm.all_reduce(np.full(33, r + 1, dtype)) == np.full(33, 3, dtype)).all()
    a = array.array("d", [r, 1.0])
    comm.all_reduce(a, out=a)
    assert list(a) == [1.0, 2.0]
    b = bytearray([r + 1] * 5)
    comm.broadcast(b, 1)
    assert b == bytearray([2] * 5)
    class Foreign:  # all that DLPack asks for
        def __init__(self, x): self.x = x
        def __dlpack__(self, **how): return self.x.__dlpack__(**how)
        def __dlpack_device__(self): return self.x.__dlpack_device__()
    assert comm.all_reduce(Foreign(np.ones(3))).tolist() == [2.0] * 3
    import sys, types
    class Tensor:  # of PyTorch, as far as it matters: NumPy knows no bfloat16 by itself
        dtype = "torch.bfloat16"
        def __init__(self, x): self.x = x
        def view(self, kind): return self.x.view(kind)
        def __dlpack__(self, **how): raise BufferError("Unsupported dtype in DLTensor")
        def __dlpack_device__(self): return (1, 0)
    sys.modules["torch"] = types.SimpleNamespace(Tensor=Tensor, int16=np.int16)
    brain = Tensor(np.full(5, r + 1, DTYPES["bfloat16"]))
    assert comm.all_reduce(brain).astype(int).tolist() == [3] * 5
    comm.all_reduce(brain, out=brain)
    assert brain.x.astype(int).tolist() == [3] * 5
    del sys.modules["torch"]
    gaps = np.arange(20.0)[::2]
    assert np.array_equal(comm.all_reduce(gaps), 2 * gaps)
    for bad, message in (
        (lambda: comm.all_reduce(np.zeros(3, "M8[s]")), "GC3-M002"),
        (lambda: comm.all_reduce(np.ones(3, "c8"), op="max"), "GC3-M003"),
        (lambda: comm.all_reduce(np.ones(3), op="mean"), "GC3-M003"),
        (lambda: comm.all_reduce(np.ones(3), out=np.ones(4)), "GC3-R001"),
        (lambda: comm.all_reduce(np.ones(3), out=np.ones(3, np.float32)), "GC3-R001"),
        (lambda: comm.all_reduce(np.ones(3), out=[1, 2, 3]), "GC3-R001"),
        (lambda: comm.all_reduce(gaps, out=np.ones(20)[::2]), "GC3-R001"),
        (lambda: comm.all_reduce(np.ones(3), out=np.broadcast_to(1.0, 3)), "GC3-R001"),
        (lambda: comm.reduce_scatter(np.ones(3)), "GC3-R001"),
        (lambda: comm.broadcast(np.ones(3), 2), "GC3-L007"),
    ):
        try:
            bad()
        except gc3.UserError as problem:
            assert problem.code == message, problem
        else:
            raise AssertionError(message)
    shifted = np.zeros(4)
    try:
        comm.all_reduce(shifted[:3], out=shifted[1:])
    except gc3.UserError as problem:
        assert "overlap" in str(problem)
    assert comm.all_reduce(1) == 2  # mistakes that were found at once did no harm
""",
        2,
    )


def test_calls_that_go_on_meanwhile() -> None:
    ranks.run(
        """
with gc3.init() as comm:
    handles = [comm.all_reduce_async(np.full(1000, i)) for i in range(20)]
    gathered = comm.all_gather_async([r])
    assert comm.all_reduce(1) == n  # in turn, after those that were started
    assert gathered.test()
    assert [int(h.wait()[0]) for h in handles] == [i * n for i in range(20)]
    assert gathered.wait().tolist() == list(range(n))
    if r == 0:
        late = comm.all_reduce_async(np.ones(3))
        try:
            late.wait(0.05)
        except gc3.CommError as problem:
            assert problem.code == "GC3-R003"
        else:
            raise AssertionError("nobody else has called")
        assert not late.test()
    if r != 0:
        time.sleep(0.5)
        late = comm.all_reduce_async(np.ones(3))
    assert late.wait().tolist() == [n] * 3
""",
        3,
    )


def test_arrays_of_a_call_are_let_go_when_it_is_done() -> None:
    with gc3.init(rank=0, size=1, job=f"let go {os.getpid()}") as comm:
        given = np.ones(10)
        watched = weakref.ref(given)
        handle = comm.all_reduce_async(given)
        del given
        assert handle.wait().sum() == 10
        del handle
        assert watched() is None
        lost = np.ones(10)
        watched = weakref.ref(lost)
        comm.all_reduce_async(lost)  # no rank waits for it
        del lost
        comm.settle()
        assert comm.all_reduce_async([1.0]).wait() == [1.0]  # the next one finds it finished
        assert watched() is None


def test_split_two_communicators_and_threads() -> None:
    ranks.run(
        """
import threading
a, b = gc3.init(), gc3.init()
def work(comm, times):
    for i in range(times):
        assert comm.all_reduce(i) == i * comm.size
threads = [threading.Thread(target=work, args=(comm, 100)) for comm in (a, b)]
for t in threads: t.start()
for t in threads: t.join()
half = a.split(r % 2, key=-r)
assert half.size == 2 and half.rank == (1 if r < 2 else 0)
assert half.all_gather([r]).tolist() == [2 + r % 2, r % 2]
assert (a.split(None if r else 0) is None) == (r != 0)
half.close(); b.close()
assert a.all_reduce(1) == 4
a.close()
try:
    a.barrier()
except gc3.UserError as problem:
    assert problem.code == "GC3-R011"
""",
        4,
    )


def test_a_fork_is_refused() -> None:
    ranks.run(
        """
comm = gc3.init()
child = os.fork()
if child == 0:
    try:
        comm.all_reduce(1)
    except gc3.UserError as problem:
        os._exit(0 if problem.code == "GC3-R012" else 1)
    os._exit(2)
assert os.waitpid(child, 0)[1] == 0
assert comm.all_reduce(1) == n
""",
        2,
    )


def test_ones_own_program_is_loaded_and_explained(tmp_path: Path) -> None:
    row = {
        "collective": "allreduce",
        "size": [0, 100],
        "program": {"algorithm": "ring_allreduce", "protocol": "LL128"},
        "note": "mine",
    }
    table = tmp_path / "mine.json"
    table.write_text(json.dumps({"format": "gc3-selection-1", "rows": [row]}))
    ranks.run(
        f"""
from gc3.algorithms import load
with gc3.init(table={str(table)!r}) as comm:
    told = comm.explain("allreduce", 10)
    assert told.source == "mine.json row 1" and told.note == "mine" and "ring_allreduce" in told.program
    told = comm.explain("allreduce", 1000)
    assert ("mine.json row 1", "for less than 100 B") in told.passed_over and "default.json" in told.source
    assert comm.all_reduce(2) == 6
    mine = comm.load(gc3.compile(load("ring_allreduce"), R=3, in_place=False), min_size=1000)
    told = comm.explain("allreduce", 1000)
    assert told.source == "the loaded program ring_allreduce", told
    told = comm.explain("allreduce", 1000, in_place=True)
    assert ("the loaded program ring_allreduce", "for calls out of place") in told.passed_over
    assert str(told).count("\\n") >= 2
    assert comm.all_reduce(np.ones(1000)).sum() == 3000
    swap = gc3.collectives.custom("rotate", inputs=[1] * 3, outputs=[1] * 3, expect=lambda rank, _: ((rank + 1) % 3, 0))
    @gc3.algorithm(lambda: swap)
    def rotate() -> None:
        for rank in range(3):
            gc3.chunk((rank + 1) % 3, "in", 0).copy(rank, "out", 0)
    assert comm.run(gc3.compile(rotate), np.full(4, r)).tolist() == [(r + 1) % 3] * 4
    try:
        comm.load(gc3.compile(load("ring_allreduce"), R=4))
    except gc3.UserError as problem:
        assert "4 ranks" in str(problem)
    else:
        raise AssertionError("it does not fit")
""",
        3,
    )


def test_a_killed_rank_is_named_and_nothing_is_left() -> None:
    code = """
comm = gc3.init()
if r == 1:
    comm.all_reduce(np.ones(100_000))
    os.kill(os.getpid(), signal.SIGKILL)
started = time.monotonic()
try:
    while True:
        comm.all_reduce(np.ones(100_000))
except gc3.CommError as problem:
    assert problem.code == "GC3-R009" and "rank 1 (process" in problem.message, problem
    assert time.monotonic() - started < 20  # the time-out is 60
    print("told")
"""
    results = ranks.start(code, 3).finish()
    assert [status for status, _ in results] == [0, -signal.SIGKILL, 0]
    assert [text for _, text in results] == ["told\n", "", "told\n"]


def test_different_calls_are_told_on_every_rank() -> None:
    for call, said in (
        ("comm.all_reduce(np.ones(3 + (r == 1)))", "rank 1: allreduce of 4 float64 (sum)"),
        ("comm.all_gather([1]) if r == 1 else comm.all_reduce([1])", "rank 1: allgather of 1 int64"),
        ("comm.broadcast(np.ones(2), int(r == 1))", "broadcast of 2 float64, root 1"),
        ("comm.all_reduce(np.ones(3, np.float32 if r == 1 else np.int32))", "rank 1: allreduce of 3 float32 (sum)"),
        ("comm.barrier() if r == 1 else comm.all_reduce(1)", "rank 1: barrier"),
    ):
        outputs = ranks.run(
            f"""
comm = gc3.init()
comm.all_reduce(1)
try:
    {call}
    comm.barrier()
except gc3.CommError as problem:
    print(problem)
""",
            3,
        )
        for text in outputs:
            assert "GC3-R010" in text, text
            assert said in text, text


def test_ctrl_c_ends_a_call_on_all_ranks() -> None:
    world = ranks.start(
        """
comm = gc3.init()
if r == 1:
    time.sleep(1.5)
try:
    print("ready", flush=True)
    comm.all_reduce(1)
except KeyboardInterrupt:
    print("interrupted")
except gc3.CommError as problem:
    print(problem)
""",
        2,
    )
    output = world.processes[0].stdout
    assert output is not None
    assert output.readline() == "ready\n"
    time.sleep(0.3)
    world.processes[0].send_signal(signal.SIGINT)
    (first, told), (second, other) = world.finish()
    assert (first, second) == (0, 0)
    assert told == "interrupted\n"
    assert "rank 0 (process" in other
    assert "was interrupted" in other


def test_arrays_that_all_ranks_can_read() -> None:
    ranks.run(
        """
try:
    gc3.empty(3)
except gc3.UserError as problem:
    assert problem.code == "GC3-R011"
comm = gc3.init()
x, y = gc3.empty((3, 50_000), "int64"), comm.empty(150_000, np.int64)
assert x.shape == (3, 50_000) and x.dtype == np.int64 and not x.any() and gc3.empty(0).size == 0
for turn in range(5):
    x[:] = np.arange(150_000).reshape(3, -1) + r + turn
    comm.all_reduce(x, out=y)
    x[:] = 0  # the others are done with it
    assert np.array_equal(y, n * (np.arange(150_000) + turn) + n * (n - 1) // 2)
    comm.all_reduce(y, out=y)
    assert y[1] == n * (n * (1 + turn) + n * (n - 1) // 2)
    plain = np.arange(150_000) * r
    assert np.array_equal(comm.all_gather(plain)[-150_000:], np.arange(150_000) * (n - 1))
(file,) = (f for f in os.listdir("/proc/self/fd") if "memfd:gc3" in os.path.realpath(f"/proc/self/fd/{f}"))
kept = os.dup(int(file))  # close() gives back the communicator's own
def used():
    return os.fstat(kept).st_blocks
comm.close()
y[:] = 1  # it outlives the communicator
before = used()
del x
assert used() <= before - 3 * 50_000 * 8 // 512
""",
        3,
    )


@pytest.mark.skipif(len(os.sched_getaffinity(0)) != os.cpu_count(), reason="gc3 leaves restricted processes alone")
@pytest.mark.skipif((os.cpu_count() or 1) > 7, reason="takes more ranks than cores")
@pytest.mark.parametrize(("pin", "spread"), [("1", 1), ("0", os.cpu_count())])
def test_ranks_that_share_cores_are_dealt_out_evenly(pin: str, spread: int) -> None:
    cores = os.cpu_count() or 1
    code = "comm = gc3.init(); print(*os.sched_getaffinity(0))"
    allowed = [text.split() for text in ranks.run(code, cores + 1, {"GC3_PIN": pin})]
    assert {len(cores) for cores in allowed} == {spread}
    if pin == "1":
        counts = [allowed.count([str(core)]) for core in range(cores)]
        assert sorted(counts) == [1] * (cores - 1) + [2]


def test_without_a_launcher_the_error_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(errors.UserError, match="GC3-R007") as caught:
        gc3.init()
    assert "WORLD_SIZE" in caught.value.hint


def test_ranks_that_do_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GC3_JOIN_TIMEOUT", "0.2")
    with pytest.raises(errors.CommError, match=r"these have not joined within 0.2 s: 1"):
        gc3.init(rank=0, size=2, job=f"nobody {os.getpid()}")


@pytest.mark.skipif("asan" in os.environ.get("LD_PRELOAD", ""), reason="the sanitizer itself needs descriptors")
def test_a_system_that_refuses_is_quoted() -> None:
    (text,) = ranks.run(
        """
import resource
from gc3 import UserError, init
from gc3.comm import Table
Table.default()  # is read before the ranks meet
resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) - 1, 4096))
try:
    init()
except UserError as problem:
    print(problem)
""",
        1,
    )
    assert "GC3-R013 a system call failed: memfd_create: Too many open files" in text


def test_timing_without_python_in_between() -> None:
    ranks.run(
        """
with gc3.init() as comm:
    for name in gc3.collectives.BUILTIN:
        for in_place in (False, True) if name not in ("reduce", "gather", "scatter") else (False,):
            seconds = comm.time(name, 1000, in_place=in_place, warmup=1, iterations=3)
            assert len(seconds) == 3 and all(0 < s < 10 for s in seconds)
""",
        3,
    )


def test_run_and_bench_on_processes() -> None:
    base = [sys.executable, "-m", "gc3"]
    for arguments in (
        [
            "run",
            "ring_allreduce",
            "-D",
            "R=3",
            "--engine",
            "processes",
            "--size",
            "100003B",
            "--dtype",
            "int8",
            "--check",
        ],
        ["run", "direct_alltoall", "-D", "R=4", "--engine", "processes", "--protocol", "LL", "--check", "--json"],
        ["bench", "ring_allreduce", "-D", "R=2", "--engine", "processes", "-b", "1KiB", "-e", "64KiB", "-f", "8"],
    ):
        done = subprocess.run([*base, *arguments], capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr
    refused = subprocess.run(
        [*base, "run", "ring_allreduce", "-D", "R=2", "--engine", "processes", "--seed", "1"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert refused.returncode == 2
    assert "--engine threads" in refused.stderr


def children(process: int) -> list[int]:
    return [int(p) for p in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_rank_processes_of_a_tool_end_with_it(how: signal.Signals) -> None:
    command = ["bench", "ring_allreduce", "-D", "R=3", "--engine", "processes", "-b", "64MiB", "-n", "100000"]
    tool = subprocess.Popen([sys.executable, "-m", "gc3", *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 30
    while len(children(tool.pid)) < 3 and time.monotonic() < deadline:
        time.sleep(0.02)
    found = children(tool.pid)
    assert len(found) == 3
    time.sleep(1)
    tool.send_signal(how)
    tool.communicate(timeout=20)
    assert tool.returncode == (130 if how == signal.SIGINT else -how)
    deadline = time.monotonic() + 30
    while any(Path(f"/proc/{p}").exists() and running(p) for p in found) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not [p for p in found if Path(f"/proc/{p}").exists() and running(p)]


def running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_the_result_in_a_process_of_one() -> None:
    with gc3.init(rank=0, size=1, job=f"alone {os.getpid()}") as comm:
        assert comm.all_gather(np.arange(3)).tolist() == [0, 1, 2]
        assert "direct_allreduce" in str(comm.explain("allreduce", 10**6))
        assert repr(comm) == "<gc3.Communicator rank 0 of 1>"
