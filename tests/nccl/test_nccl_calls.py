"""Calls of NCCL's API that programs serve, and those that are left to NCCL: on the fake driver, above a fake NCCL."""

from __future__ import annotations

import ctypes
import itertools
import json
import random
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nccl_world
from gc3 import datatypes, nccl
from nccl_world import INVALID_ARGUMENT, SERVED, Case, World

pytestmark = [nccl_world.needs_library, pytest.mark.python_only]
COUNTS = (1, 5, 1000, 4099)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return nccl_world.write_programs(tmp_path_factory.mktemp("nccl") / "programs", (2, 3, 4, 8))


def served(log: Path) -> tuple[int, int]:
    """How many calls programs have served, and how many NCCL."""
    calls = [s for found in nccl.read_logs(log) for s in found.served]
    return sum(s.calls for s in calls if s.by != "NCCL"), sum(s.calls for s in calls if s.by == "NCCL")


def every_collective(size: int) -> None:
    world = World(size)
    dtypes = itertools.cycle(("int32", "float32", "uint8", "int64", "float64", "int8"))
    roots = itertools.cycle(range(size))
    for collective, count, in_place in itertools.product(SERVED, COUNTS, (False, True)):
        case = Case(collective, size, count, next(dtypes), [in_place] * size, root=next(roots))
        if count % 2:
            with world.group():  # one thread with several devices
                assert [case.put(rank) for rank in world.ranks] == [0] * size
        else:
            world.each(lambda rank, case=case: case.put(rank))
        for rank in world.ranks:
            rank.synchronize()
        case.check()
    world.close()


@pytest.mark.parametrize("size", [2, 3, pytest.param(4, marks=pytest.mark.nightly), 8])
def test_every_collective_in_and_out_of_place(size: int, programs: Path, tmp_path: Path) -> None:
    nccl_world.run(every_collective, size, programs=programs, log=tmp_path)
    assert served(tmp_path) == (size * len(SERVED) * len(COUNTS) * 2, 0)


def every_type_and_operation() -> None:
    """Each pair of numbers of nccl.h, and what is no such number; what is refused leaves the buffers alone."""
    world = World(2)
    types, reducing = nccl_world.TYPES | nccl_world.NARROW, ("allreduce", "reduce", "reducescatter")
    for collective, (name, number) in itertools.product(SERVED, types.items()):
        for op in nccl_world.OPS if collective in reducing else ("sum",):
            case = Case(collective, 2, 5, datatypes.dtype(name), [False, False], op=op, root=1)
            with world.group():
                assert [case.put(rank) for rank in world.ranks] == [0, 0], (collective, name, op)
            for rank in world.ranks:
                rank.synchronize()
            case.check()
        wrong = [(-1, None), (12, None), (1 << 30, None)] if number == 0 else []
        wrong += [(number, op) for op in (-1, 5, 99)] if collective in reducing else []
        for numbers in wrong:
            before = [take.copy() for take in case.take]
            assert [case.put(rank, numbers=numbers) for rank in world.ranks] == [INVALID_ARGUMENT] * 2, numbers
            assert all((a == b).all() for a, b in zip(before, case.take, strict=True))
    world.close()


def test_every_type_and_operation(programs: Path, tmp_path: Path) -> None:
    nccl_world.run(every_type_and_operation, programs=programs, log=tmp_path)
    pairs = len(nccl_world.TYPES | nccl_world.NARROW) * (len(SERVED) - 3 + 3 * len(nccl_world.OPS))
    assert served(tmp_path) == (2 * pairs, 0)


def each_rank_decides_whether_it_is_in_place() -> None:
    world = World(3)
    for collective in SERVED:
        case = Case(collective, 3, 100, "int32", [True, False, True], root=1)
        world.each(case.put)
        for rank in world.ranks:
            rank.synchronize()
        case.check()
    world.close()


def test_ranks_may_differ_in_being_in_place(programs: Path, tmp_path: Path) -> None:
    nccl_world.run(each_rank_decides_whether_it_is_in_place, programs=programs, log=tmp_path)
    assert served(tmp_path) == (3 * len(SERVED), 0)


def averages(size: int) -> None:
    """Floating-point numbers are multiplied before they are added, as by NCCL; the sum of integers is divided."""
    world = World(size)
    numbers = {name: nccl_world.TYPES[name] for name in ("int8", "int32", "float32", "float64")} | nccl_world.NARROW
    for (name, number), in_place in itertools.product(numbers.items(), (False, True)):
        dtype, blocks = datatypes.dtype(name), {"ncclAllReduce": 1, "ncclReduceScatter": size, "ncclReduce": 1}
        is_float = datatypes.kind(dtype) == "float"
        # The sum over the ranks is too large for the type.
        element = np.full(1, 0.9 * float(ml_dtypes.finfo(dtype).max) if is_float else -3, dtype)
        for function, parts in blocks.items():
            give = [np.repeat(element, 6 * parts) for _ in range(size)]
            at = [6 * rank * (parts > 1) for rank in range(size)]
            take = [give[r][at[r] : at[r] + 6] if in_place else np.zeros(6, dtype) for r in range(size)]

            how = (ctypes.c_size_t(6), number, 4, *([0] if function == "ncclReduce" else []))
            with world.group():
                for rank, *arrays in zip(world.ranks, give, take, strict=True):
                    data = [ctypes.c_void_p(a.ctypes.data) for a in arrays]
                    with world.driver.on(rank.device):
                        world.check(function, *data, *how, rank.comm, rank.streams[0])
            for rank in world.ranks:
                rank.synchronize()
            wanted = np.repeat(averaged(element, size), 6).tobytes()
            assert all(t.tobytes() == wanted for t in take[: 1 if function == "ncclReduce" else size]), (name, take)
            if not in_place:
                assert all((g == element).all() for g in give)
    world.close()


def averaged(element: Any, size: int) -> Any:
    """What NCCL makes of elements that are the same on all ranks, in the order of their sum."""
    if element.dtype.kind == "i":
        return element
    scaled = total = element * np.full(1, 1 / size, element.dtype)
    for _ in range(size - 1):
        total = total + scaled
    return total


@pytest.mark.parametrize("size", [2, 3])
def test_averages_do_not_overflow(size: int, programs: Path, tmp_path: Path) -> None:
    nccl_world.run(averages, size, programs=programs, log=tmp_path)
    assert served(tmp_path) == (size * 8 * 2 * 3, 0)


def random_programs(seed: int, programs: int) -> None:
    """Groups and single calls on two communicators and two streams each; what is put at once is checked at the end."""
    rng = random.Random(seed)  # noqa: S311  reproducible test data
    worlds = [World(2), World(3)]
    for _ in range(programs):
        cases: list[tuple[World, Case, int]] = []
        for _ in range(rng.randrange(1, 6)):
            world = rng.choice(worlds)
            count = rng.choice((0, 1, 7, 300, 2500))
            places = [rng.random() < 0.5 for _ in world.ranks]
            case = Case(
                rng.choice(list(SERVED)), world.size, count, rng.choice(list(nccl_world.TYPES)), places,
                op=rng.choice(list(nccl_world.OPS)), root=rng.randrange(world.size), seed=rng.randrange(1 << 30),
            )  # fmt: skip
            cases.append((world, case, rng.randrange(2)))
        if rng.random() < 0.5:
            nested = rng.random() < 0.5
            with worlds[0].group():
                for world, case, stream in cases:
                    if nested:
                        world.check("ncclGroupStart")
                    assert [case.put(rank, stream) for rank in world.ranks] == [0] * world.size
                    if nested:
                        world.check("ncclGroupEnd")
        else:

            def one(rank: nccl_world.Rank, cases: list[tuple[World, Case, int]] = cases) -> None:
                for world, case, stream in cases:
                    if rank.world is world:
                        assert case.put(rank, stream) == 0

            for world in worlds:
                world.each(one)
        for world in worlds:
            for rank in world.ranks:
                rank.synchronize()
        for _, case, _ in cases:
            case.check()
    for world in worlds:
        world.close()


@pytest.mark.parametrize("seed", range(4))
def test_random_programs(seed: int, tmp_path: Path) -> None:
    # Programs for half of the sizes, so that calls of both kinds follow each other.
    some = nccl_world.write_programs(tmp_path / "programs", (2, 3), sizes="1000 -")
    nccl_world.run(random_programs, seed, 50, programs=some, log=tmp_path)
    by_programs, by_nccl = served(tmp_path)
    assert by_programs > 50
    assert by_nccl > 50


def without_programs() -> None:
    world = World(2)
    case = Case("allreduce", 2, 50, "int32", [False, False])
    world.each(case.put)
    world.close()
    case.check()


def test_without_programs_nccl_serves_all(tmp_path: Path) -> None:
    nccl_world.run(without_programs, programs=None, log=tmp_path)
    assert served(tmp_path) == (0, 2)


def refused() -> None:
    world = World(2)
    case = Case("broadcast", 2, 50, "int32", [False, False])
    world.each(case.put)
    for rank in world.ranks:
        rank.synchronize()
    case.root = 7
    assert [case.put(rank) for rank in world.ranks] == [INVALID_ARGUMENT] * 2
    with world.group():
        assert [case.put(rank) for rank in world.ranks] == [INVALID_ARGUMENT] * 2
    world.close()


@pytest.mark.parametrize("served_by", ["programs", "NCCL"])
def test_refused_calls_are_not_counted(served_by: str, programs: Path, tmp_path: Path) -> None:
    nccl_world.run(refused, programs=programs if served_by == "programs" else None, log=tmp_path)
    assert served(tmp_path) == ((2, 0) if served_by == "programs" else (0, 2))


def reentered() -> None:
    world = World(2)
    data = [np.full(10, 5 + r, "int32") for r in range(2)]

    def work(rank: nccl_world.Rank) -> None:
        at = ctypes.c_void_p(data[rank.rank].ctypes.data)
        with world.driver.on(rank.rank):
            end = (rank.comm, rank.streams[0])
            assert world.nccl.ncclBcast(at, ctypes.c_size_t(10), 2, 1, *end) == 0
        rank.synchronize()

    world.each(work)
    world.close()
    assert [list(d) for d in data] == [[6] * 10] * 2


def test_a_call_of_nccls_own_is_not_taken_over_again(tmp_path: Path) -> None:
    # NCCL's ncclBcast calls ncclBroadcast by name.
    larger = nccl_world.write_programs(tmp_path / "programs", (2,), sizes="1000 -")
    nccl_world.run(reentered, programs=larger, log=tmp_path, LD_PRELOAD=str(nccl.library()))
    assert [s.function for log in nccl.read_logs(tmp_path) for s in log.served] == ["ncclBcast"]


def replayed() -> None:
    world = World(2)
    case = Case("allreduce", 2, 300, "int32", [False, False])
    world.each(case.put)  # not captured: the ranks prepare the program
    for rank in world.ranks:
        rank.synchronize()
    graphs: dict[int, ctypes.c_void_p] = {}

    def capture(rank: nccl_world.Rank) -> None:
        graph, ready = ctypes.c_void_p(), ctypes.c_void_p()
        with world.driver.on(rank.rank):
            world.driver("cuStreamBeginCapture_v2", rank.streams[0], 2)
            assert case.put(rank) == 0
            world.driver("cuStreamEndCapture", rank.streams[0], ctypes.byref(graph))
            world.driver("cuGraphInstantiateWithFlags", ctypes.byref(ready), graph, ctypes.c_ulonglong(0))
        graphs[rank.rank] = ready

    for rank in world.ranks:
        capture(rank)
    for turn in range(3):
        for r in range(2):
            case.given[r][:] = case.give[r][:] = np.arange(300) + turn + r
        for rank in world.ranks:
            with world.driver.on(rank.rank):
                world.driver("cuGraphLaunch", graphs[rank.rank], rank.streams[0])
        for rank in world.ranks:
            rank.synchronize()
        case.check()
    world.close()


def test_graphs_are_replayed(programs: Path, tmp_path: Path) -> None:
    nccl_world.run(replayed, programs=programs, log=tmp_path)
    assert served(tmp_path) == (4, 0)


def another_table(path: str) -> None:
    world = World(2)
    world.check("gc3CommLoad", world.ranks[0].comm, path.encode())
    for _ in range(2):
        case = Case("allreduce", 2, 300, "int32", [False, False])
        world.each(case.put)
        for rank in world.ranks:
            rank.synchronize()
        case.check()
    world.close()


def test_ranks_with_different_tables_use_none(programs: Path, tmp_path: Path) -> None:
    other = programs / "ring_allgather-2-0.gc3"
    said = nccl_world.run(another_table, str(other), programs=programs, log=tmp_path)
    assert served(tmp_path) == (0, 4)
    assert "NCCL serves all calls, because the programs of rank" in said


def exchange_blocks(blocks: str) -> None:
    world = World(3)
    given = [np.arange(30, dtype="int32") + 100 * r for r in range(3)]
    taken = [np.zeros(30, "int32") for _ in range(3)]
    with world.group():
        for rank in world.ranks:
            with world.driver.on(rank.rank):
                for peer in range(3):
                    at = (peer + (rank.rank if blocks == "elsewhere" else 0)) % 3 * 40
                    send = ctypes.c_void_p(given[rank.rank].ctypes.data + at)
                    recv = ctypes.c_void_p(taken[rank.rank].ctypes.data + 40 * peer)
                    count, end = ctypes.c_size_t(10), (peer, rank.comm, rank.streams[0])
                    assert world.nccl.ncclSend(send, count, 2, *end) == 0
                    assert world.nccl.ncclRecv(recv, count, 2, *end) == 0
    for rank in world.ranks:
        rank.synchronize()
    for r in range(3):
        for peer in range(3):
            block = (r + (peer if blocks == "elsewhere" else 0)) % 3
            assert list(taken[r][10 * peer :][:10]) == list(given[peer][10 * block :][:10])
    world.close()


@pytest.mark.parametrize(("asked", "calls"), [("1", (3, 0)), ("0", (0, 18))])
def test_grouped_sends_and_receives(asked: str, calls: tuple[int, int], programs: Path, tmp_path: Path) -> None:
    nccl_world.run(exchange_blocks, "in order", programs=programs, log=tmp_path, GC3_NCCL_EXCHANGES=asked)
    assert served(tmp_path) == calls


def own_program(path: str) -> None:
    world = World(2)
    program = ctypes.c_void_p()
    world.check("gc3ProgramLoad", path.encode(), ctypes.byref(program))
    give = [np.arange(8, dtype="int32") + r for r in range(2)]
    take = [np.zeros(8, "int32") for _ in range(2)]

    def work(rank: nccl_world.Rank) -> None:
        send, recv = (ctypes.c_void_p(a[rank.rank].ctypes.data) for a in (give, take))
        with world.driver.on(rank.rank):
            answer = world.nccl.gc3CollRun(program, send, recv, ctypes.c_size_t(4), 2, 0, rank.comm, rank.streams[0])
            assert answer == 0, world.last_error()
        rank.synchronize()

    world.each(work)
    assert [list(t) for t in take] == [[0, 1, 2, 3, 1, 2, 3, 4], [4, 5, 6, 7, 5, 6, 7, 8]]
    world.close()
    world.check("gc3ProgramFree", program)
    assert world.nccl.gc3ProgramLoad(b"/nowhere", ctypes.byref(program)) == 5
    assert "cannot read the file" in world.last_error()


def test_a_program_that_the_caller_chooses(programs: Path) -> None:
    nccl_world.run(own_program, str(programs / "direct_alltoall-2-0.gc3"), programs=None)


def a_rank_is_late() -> None:
    world = World(2)
    case = Case("allreduce", 2, 300, "int32", [False, False])
    world.each(case.put)
    for rank in world.ranks:
        rank.synchronize()
    first, second = world.ranks
    assert case.put(first) == 0
    first.synchronize()  # ends at the time limit
    error = ctypes.c_int()
    world.check("ncclCommGetAsyncError", first.comm, ctypes.byref(error))
    assert error.value == 6
    assert f"has waited for {nccl_world.IN_VAIN} s" in world.last_error()
    assert case.put(first) == 6
    world.check("ncclCommAbort", first.comm)
    world.check("ncclCommAbort", second.comm)


def test_a_rank_that_does_not_call(programs: Path) -> None:
    nccl_world.run(a_rank_is_late, programs=programs, GC3_COMM_TIMEOUT=nccl_world.IN_VAIN)


def a_communicator_is_aborted() -> None:
    world = World(2)
    case = Case("allreduce", 2, 300, "int32", [False, False])
    world.each(case.put)
    for rank in world.ranks:
        rank.synchronize()
    assert case.put(world.ranks[0]) == 0  # waits for rank 1
    world.check("ncclCommAbort", world.ranks[0].comm)
    world.ranks[0].synchronize()
    world.check("ncclCommAbort", world.ranks[1].comm)


def test_abort_ends_a_call_that_waits(programs: Path) -> None:
    nccl_world.run(a_communicator_is_aborted, programs=programs, GC3_COMM_TIMEOUT="3600")


def counts_differ() -> None:
    world = World(2)
    case = Case("allreduce", 2, 300, "int32", [False, False])
    world.each(case.put)
    wrong = Case("allreduce", 2, 200, "int32", [False, False])
    assert case.put(world.ranks[0]) == 0
    assert wrong.put(world.ranks[1]) == 0
    for rank in world.ranks:
        rank.synchronize()
        error = ctypes.c_int()
        world.check("ncclCommGetAsyncError", rank.comm, ctypes.byref(error))
        assert error.value == 6
    for rank in reversed(world.ranks):
        world.check("ncclCommDestroy", rank.comm)


def test_counts_that_differ_are_an_error_and_no_data(programs: Path) -> None:
    nccl_world.run(counts_differ, programs=programs, GC3_COMM_TIMEOUT=nccl_world.IN_VAIN)


def test_what_the_log_says_is_shown(programs: Path, tmp_path: Path) -> None:
    nccl_world.run(every_collective, 2, programs=programs, log=tmp_path)
    (log,) = nccl.read_logs(tmp_path)
    (file,) = tmp_path.glob(f"gc3-nccl-{log.host}-{log.process}-*.json")
    assert json.loads(file.read_text())["nccl"].endswith("libgc3_fake_nccl.so")
    assert {s.function for s in log.served} >= {"ncclAllReduce", "ncclScatter"}
    assert all(s.host_ns > 0 for s in log.served)
