"""Calls of NCCL's API with a process for each rank, on the fake driver, above a fake NCCL."""

from __future__ import annotations

import itertools
import os
import random
import signal
import time
from pathlib import Path

import numpy as np
import pytest

import nccl_world
from gc3 import nccl
from nccl_world import IN_PROGRESS, REMOTE_ERROR, SERVED, SUCCESS, Case, World, in_processes, leave

pytestmark = [nccl_world.needs_library, pytest.mark.python_only]
SIZES = (2, 3, 4, 8)
COUNTS = (1, 1000)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return nccl_world.write_programs(tmp_path_factory.mktemp("nccl") / "programs", SIZES)


def served(log: Path) -> tuple[int, int]:
    """How many calls programs have served, and how many NCCL."""
    calls = [s for found in nccl.read_logs(log) for s in found.served]
    return sum(s.calls for s in calls if s.by != "NCCL"), sum(s.calls for s in calls if s.by == "NCCL")


def every_collective(world: World) -> None:
    (rank,) = world.ranks
    dtypes = itertools.cycle(("int32", "float32", "uint8", "int64", "float64", "int8"))
    roots = itertools.cycle(range(world.size))
    for collective, count, in_place in itertools.product(SERVED, COUNTS, (False, True)):
        case = Case(collective, world.size, count, next(dtypes), [in_place] * world.size, root=next(roots))
        assert case.put(rank) == SUCCESS
        rank.synchronize()
        case.check([rank.rank])
    world.close()


def all_sizes() -> None:
    for size in SIZES:
        assert in_processes(size, every_collective) == [0] * size


def test_every_collective_in_and_out_of_place(programs: Path, tmp_path: Path) -> None:
    nccl_world.run(all_sizes, programs=programs, log=tmp_path)
    assert served(tmp_path) == (sum(SIZES) * len(SERVED) * len(COUNTS) * 2, 0)
    assert len(nccl.read_logs(tmp_path)) == sum(SIZES)


def random_calls(world: World, seed: int) -> None:
    """Groups and single calls on two streams, the same on all ranks; what is put at once is checked at the end."""
    (rank,) = world.ranks
    rng = random.Random(seed)  # noqa: S311  reproducible test data
    for _ in range(40):
        cases = [
            Case(
                rng.choice(list(SERVED)), world.size, rng.choice((0, 1, 7, 300, 2500)),
                rng.choice(list(nccl_world.TYPES)), [rng.random() < 0.5 for _ in range(world.size)],
                op=rng.choice(list(nccl_world.OPS)), root=rng.randrange(world.size), seed=rng.randrange(1 << 30),
            )
            for _ in range(rng.randrange(1, 5))
        ]  # fmt: skip
        streams = [rng.randrange(2) for _ in cases]
        grouped = rng.random() < 0.5
        if grouped:
            world.check("ncclGroupStart")
        for case, stream in zip(cases, streams, strict=True):
            assert case.put(rank, stream) == SUCCESS
        if grouped:
            world.check("ncclGroupEnd")
        rank.synchronize()
        for case in cases:
            case.check([rank.rank])
    world.close()


def random_worlds() -> None:
    for size, seed in ((2, 1), (3, 2), (4, 3)):
        assert in_processes(size, random_calls, seed) == [0] * size


def test_random_programs(tmp_path: Path) -> None:
    some = nccl_world.write_programs(tmp_path / "programs", (2, 3, 4), sizes="1000 -")
    nccl_world.run(random_worlds, programs=some, log=tmp_path)
    by_programs, by_nccl = served(tmp_path)
    assert by_programs > 50
    assert by_nccl > 50


def killed(world: World, by: str) -> None:
    (rank,) = world.ranks
    cases = [Case("allreduce", 3, 300, "int32", [False] * 3), Case("broadcast", 3, 300, "int32", [False] * 3)]
    for case in cases:  # the first one has a program
        assert case.put(rank) == SUCCESS
        rank.synchronize()
        case.check([rank.rank])
    if rank.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    began = time.monotonic()
    case = cases[0 if by == "a program" else 1]
    assert case.put(rank) == SUCCESS
    rank.synchronize()
    assert rank.async_error() == REMOTE_ERROR
    assert time.monotonic() - began < 60  # 2 s are asked for
    assert case.put(rank) == REMOTE_ERROR
    world.check("ncclCommAbort", rank.comm)


def killed_in_a_program() -> None:
    assert in_processes(3, killed, "a program") == [0, -signal.SIGKILL, 0]


def killed_in_a_call_of_nccl() -> None:
    assert in_processes(3, killed, "NCCL") == [0, -signal.SIGKILL, 0]


@pytest.mark.parametrize("case", [killed_in_a_program, killed_in_a_call_of_nccl])
def test_a_process_is_killed(case: object, tmp_path: Path) -> None:
    assert callable(case)
    one = {"allreduce": SERVED["allreduce"]}
    programs = nccl_world.write_programs(tmp_path / "programs", (3,), one)
    nccl_world.run(case, programs=programs, GC3_COMM_TIMEOUT=nccl_world.IN_VAIN)


def killed_before_the_first_call(world: World) -> None:
    (rank,) = world.ranks
    if rank.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    case = Case("allreduce", 3, 300, "int32", [False] * 3)
    assert case.put(rank) == REMOTE_ERROR
    assert "rank" in world.last_error()
    assert rank.async_error() == REMOTE_ERROR
    world.check("ncclCommAbort", rank.comm)


def killed_first() -> None:
    assert in_processes(3, killed_before_the_first_call) == [0, -signal.SIGKILL, 0]


def test_a_process_is_killed_before_the_ranks_have_agreed(programs: Path) -> None:
    nccl_world.run(killed_first, programs=programs, GC3_COMM_TIMEOUT=nccl_world.IN_VAIN)


def different_tables(world: World, path: str) -> None:
    (rank,) = world.ranks
    if rank.rank == 1:
        world.check("gc3CommLoad", rank.comm, path.encode())
    for _ in range(2):
        case = Case("allreduce", world.size, 300, "int32", [False] * world.size)
        assert case.put(rank) == SUCCESS
        rank.synchronize()
        case.check([rank.rank])
    world.close()


def with_different_tables(path: str) -> None:
    assert in_processes(3, different_tables, path) == [0] * 3


def test_ranks_with_different_tables_use_none(programs: Path, tmp_path: Path) -> None:
    other = programs / "ring_allgather-3-0.gc3"
    said = nccl_world.run(with_different_tables, str(other), programs=programs, log=tmp_path)
    assert served(tmp_path) == (0, 6)
    assert said.count("NCCL serves all calls, because the programs of rank") == 3


def one_cannot_read(world: World, how: str, path: str) -> None:
    (rank,) = world.ranks
    mine = "/nowhere" if rank.rank == 1 else path
    if how == "GC3_NCCL_PROGRAMS":
        os.environ[how] = mine
    else:
        given = (rank.comm,) if how == "gc3CommLoad" else ()
        assert (world.nccl[how](*given, mine.encode()) == SUCCESS) == (mine == path)
    for _ in range(2):
        case = Case("allreduce", world.size, 300, "int32", [False] * world.size)
        assert case.put(rank) == SUCCESS
        rank.synchronize()
        case.check([rank.rank])
    assert rank.async_error() == SUCCESS
    world.close()


def one_has_no_programs(how: str, path: str) -> None:
    assert in_processes(3, one_cannot_read, how, path) == [0] * 3


def one_is_told_of_none(world: World, path: str) -> None:
    (rank,) = world.ranks
    if rank.rank != 1:
        os.environ["GC3_NCCL_PROGRAMS"] = path
    for collective in ("broadcast", "allreduce"):
        case = Case(collective, world.size, 300, "int32", [False] * world.size)
        assert case.put(rank) == SUCCESS
        rank.synchronize()
        case.check([rank.rank])
    world.close()


def one_is_without_programs(path: str) -> None:
    assert in_processes(3, one_is_told_of_none, path) == [0] * 3


def test_a_rank_with_the_library_and_without_programs(programs: Path, tmp_path: Path) -> None:
    """It used to take no part in the agreement: its data met the exchange of the others."""
    said = nccl_world.run(one_is_without_programs, str(programs), programs=None, log=tmp_path)
    assert served(tmp_path) == (0, 6)
    because = "ranks: NCCL serves all calls, because the programs of rank"
    assert said.count(f"{because} 1 are not those here: it has none") == 2
    assert said.count(f"{because} 0 are not those here: this rank has none") == 1


@pytest.mark.parametrize("how", ["GC3_NCCL_PROGRAMS", "gc3NcclLoad", "gc3CommLoad"])
def test_a_rank_that_cannot_read_its_programs(how: str, programs: Path, tmp_path: Path) -> None:
    said = nccl_world.run(one_has_no_programs, how, str(programs), programs=None, log=tmp_path)
    assert served(tmp_path) == (0, 6)
    because = "the programs of rank" if how == "gc3CommLoad" else "rank 1: GC3-I001"
    assert said.count(f"NCCL serves all calls, because {because}") == 3
    assert said.count("WARN") == 1


def has_no_memory(world: World) -> None:
    (rank,) = world.ranks
    case = Case("allreduce", world.size, 300, "int32", [False] * world.size)
    assert case.put(rank) not in (SUCCESS, IN_PROGRESS)
    assert "messages of ranks" in world.last_error()
    assert case.put(rank) == SUCCESS
    rank.synchronize()
    case.check([rank.rank])
    world.close()


def have_no_memory() -> None:
    assert in_processes(2, has_no_memory) == [0] * 2


def test_a_communicator_that_cannot_be_made_fails_the_call(programs: Path, tmp_path: Path) -> None:
    # NCCL must not serve the call of such a rank: the others may wait for it.
    setting = "devices=8 mapped=1 fail=cuMemAlloc_v2:1"
    nccl_world.run(have_no_memory, programs=programs, log=tmp_path, FAKE_CUDA=setting)
    assert served(tmp_path) == (2, 0)


def forks(world: World) -> None:
    every_collective(world)
    child = os.fork()
    if child == 0:
        leave(0)
    assert os.waitpid(child, 0)[1] == 0


def fork_a_child() -> None:
    assert in_processes(2, forks) == [0] * 2


def test_a_child_does_not_write_its_parents_log(programs: Path, tmp_path: Path) -> None:
    nccl_world.run(fork_a_child, programs=programs, log=tmp_path)
    logs = nccl.read_logs(tmp_path)
    assert len(logs) == len({(log.host, log.process) for log in logs}) == 2
    assert {log.host for log in logs} == {os.uname().nodename}


def left_in_any_order(world: World, order: list[int]) -> None:
    """Ranks leave one after the other, each when the one before has ended its process; the last ones still call."""
    (rank,) = world.ranks
    cases = [Case("allreduce", world.size, count, "float32", [False] * world.size) for count in (300, 5000)]
    for case in cases:
        assert case.put(rank) == SUCCESS
    if rank.rank != order[0]:  # the first one does not wait for its calls
        rank.synchronize()
        for case in cases:
            case.check([rank.rank])
        for earlier in order[: order.index(rank.rank)]:
            gone = Path(os.environ["TMPDIR"]) / f"left-{earlier}"
            while not gone.exists():
                time.sleep(0.001)
    world.check("ncclCommDestroy", rank.comm)
    (Path(os.environ["TMPDIR"]) / f"left-{rank.rank}").touch()


def leave_in_any_order() -> None:
    for order in ([0, 1, 2], [2, 0, 1], [1, 2, 0]):
        assert in_processes(3, left_in_any_order, order) == [0] * 3
        for rank in order:
            (Path(os.environ["TMPDIR"]) / f"left-{rank}").unlink()
    assert os.listdir(os.environ["TMPDIR"]) == []


@pytest.mark.parametrize("unmap", [0, 20])
def test_ranks_leave_in_any_order(unmap: int, programs: Path) -> None:
    # No memory is freed that another rank still has mapped, also if unmapping takes 20 ms: see tests/fake_cuda.
    nccl_world.run(leave_in_any_order, programs=programs, FAKE_CUDA=f"devices=8 mapped=1 unmap={unmap}")


def leave_at_once(world: World) -> None:
    (rank,) = world.ranks
    case = Case("allreduce", world.size, 300, "int32", [False] * world.size)
    assert case.put(rank) == SUCCESS
    rank.synchronize()
    case.check([rank.rank])
    world.check("ncclCommDestroy", rank.comm)
    again = World(world.size, of=[rank.rank], name=os.environ["SECOND"].encode())  # its list of ranks is used again
    assert case.put(again.ranks[0]) == SUCCESS
    again.close()


def all_leave_at_once(second: str) -> None:
    os.environ["SECOND"] = second
    assert in_processes(3, leave_at_once) == [0] * 3


def test_all_ranks_leave_at_once(programs: Path, tmp_path: Path) -> None:
    second = str(tmp_path / "second")
    nccl_world.run(all_leave_at_once, second, programs=programs, FAKE_CUDA="devices=8 mapped=1 unmap=20")


def one_rank_cannot_map(world: World) -> None:
    """Its program is NCCL's then, and the memory for it is freed only when nobody has it mapped."""
    (rank,) = world.ranks
    for collective in ("allreduce", "allreduce", "allgather"):
        case = Case(collective, world.size, 300, "int32", [False] * world.size)
        assert case.put(rank) == SUCCESS
        rank.synchronize()
        case.check([rank.rank])
    world.close()


def cannot_map() -> None:
    assert in_processes(3, one_rank_cannot_map) == [0] * 3


def test_a_program_whose_memory_cannot_be_mapped(programs: Path, tmp_path: Path) -> None:
    # The first two mappings of each rank are of the lists of ranks, the next ones of the AllReduce's memory.
    setting = "devices=8 mapped=1 unmap=20 fail=cuIpcOpenMemHandle_v2:4"
    nccl_world.run(cannot_map, programs=programs, log=tmp_path, FAKE_CUDA=setting)
    assert served(tmp_path) == (3, 6)


def several_ranks_in_each(world: World) -> None:
    """Two communicators over the same processes, and a program that both use."""
    (rank,) = world.ranks
    second = World(world.size, of=[rank.rank], name=os.environ["SECOND"].encode())
    for _ in range(3):
        cases = [Case("allreduce", world.size, 300, "int32", [False] * world.size, seed=s) for s in range(2)]
        with world.group():
            for case, of in zip(cases, (world, second), strict=True):
                assert case.put(of.ranks[0]) == SUCCESS
        for of in (world, second):
            of.ranks[0].synchronize()
        for case in cases:
            case.check([rank.rank])
    second.close() if rank.rank else world.close()  # in different orders
    world.close() if rank.rank else second.close()


def two_communicators(scratch: str) -> None:
    os.environ["SECOND"] = scratch
    assert in_processes(2, several_ranks_in_each) == [0] * 2


def test_two_communicators_of_the_same_processes(programs: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    nccl_world.run(two_communicators, str(tmp_path / "second"), programs=programs, log=log)
    assert served(log) == (12, 0)


def mixed(world: World) -> None:
    """Ranks 0 and 1 are threads of one process, ranks 2 and 3 processes."""
    for collective in SERVED:
        case = Case(collective, 4, 700, "int32", [False] * 4, root=1)
        world.each(lambda rank, case=case: np.testing.assert_equal(case.put(rank), SUCCESS))
        for rank in world.ranks:
            rank.synchronize()
        case.check([rank.rank for rank in world.ranks])
    world.close()


def some_share_a_process() -> None:
    assert in_processes(4, mixed, places=[(0, 1), (2,), (3,)]) == [0] * 3


def test_processes_with_different_numbers_of_ranks(programs: Path, tmp_path: Path) -> None:
    nccl_world.run(some_share_a_process, programs=programs, log=tmp_path)
    assert served(tmp_path) == (4 * len(SERVED), 0)
