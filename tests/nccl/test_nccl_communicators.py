"""How communicators of NCCL's API are made and ended, behind the overlay: on the fake driver, above a fake NCCL."""

from __future__ import annotations

import ctypes
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nccl_world
from gc3 import nccl
from nccl_world import IN_PROGRESS, INVALID_ARGUMENT, INVALID_USAGE, REMOTE_ERROR, SUCCESS, Case, Config, Rank, World

pytestmark = [nccl_world.needs_library, pytest.mark.python_only]
NO_COLOR = -1
SHRINK_ABORT = 1


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    some = {name: nccl_world.SERVED[name] for name in ("allreduce", "allgather", "broadcast")}
    return nccl_world.write_programs(tmp_path_factory.mktemp("nccl") / "programs", (2, 3, 4), some)


def served(log: Path) -> tuple[int, int]:
    """How many calls programs have served, and how many NCCL."""
    calls = [s for found in nccl.read_logs(log) for s in found.served]
    return sum(s.calls for s in calls if s.by != "NCCL"), sum(s.calls for s in calls if s.by == "NCCL")


def works(world: World, collective: str = "allreduce") -> None:
    """Makes one call of each rank."""
    case = Case(collective, world.size, 300, "int32", [False] * world.size)
    answers: list[int] = []

    def call(rank: Rank) -> None:
        answers.append(case.put(rank))
        assert rank.wait() == SUCCESS

    world.each(call)
    assert set(answers) <= {SUCCESS, IN_PROGRESS}
    for rank in world.ranks:
        rank.synchronize()
    case.check()


def handles(count: int) -> Any:
    return (ctypes.c_void_p * count)()


def world_of(made: list[Any], devices: list[int]) -> World:
    return World(len(made), comms=[ctypes.c_void_p(m) for m in made], devices=devices)


def made_for_all_devices() -> None:
    nccl_world.Driver()
    library = ctypes.CDLL(str(nccl.library()))
    for devices in (None, (ctypes.c_int * 3)(5, 1, 3)):
        comms = handles(3)
        assert library.ncclCommInitAll(comms, 3, devices) == SUCCESS
        world = world_of(list(comms), [0, 1, 2] if devices is None else list(devices))
        works(world)
        for rank, how in zip(world.ranks, ("ncclCommDestroy", "ncclCommFinalize", "ncclCommAbort"), strict=True):
            world.check(how, rank.comm)
        world.check("ncclCommDestroy", world.ranks[1].comm)  # a finalized one is destroyed as well


def test_init_all_and_every_end(programs: Path, tmp_path: Path) -> None:
    nccl_world.run(made_for_all_devices, programs=programs, log=tmp_path)
    assert served(tmp_path) == (6, 0)


def is_split() -> None:
    world = World(4)
    works(world)
    made = [ctypes.c_void_p() for _ in range(4)]
    # Ranks 3, 1, 0 in this order; rank 2 takes no part.
    wishes = [(7, 9), (7, 5), (NO_COLOR, 0), (7, -1)]
    with world.group():
        for rank, (color, key), child in zip(world.ranks, wishes, made, strict=True):
            world.check("ncclCommSplit", rank.comm, color, key, ctypes.byref(child), None)
    assert made[2].value is None
    child = world_of([made[r].value for r in (3, 1, 0)], [3, 1, 0])
    works(child)
    works(world, "allgather")
    world.close()  # the parent first
    works(child, "broadcast")
    child.close()


def test_split_with_colors_and_keys(programs: Path, tmp_path: Path) -> None:
    nccl_world.run(is_split, programs=programs, log=tmp_path)
    assert served(tmp_path) == (4 + 3 + 4 + 3, 0)


def is_shrunk(flags: int) -> None:
    world = World(4)
    works(world)
    excluded = (ctypes.c_int * 1)(1)
    left = [world.ranks[r] for r in (0, 2, 3)]
    case = Case("allreduce", 4, 300, "int32", [False] * 4)
    if flags == SHRINK_ABORT:
        for rank in left:  # waits for rank 1, which does not come
            assert case.put(rank) == SUCCESS
    made = {rank.rank: ctypes.c_void_p() for rank in left}
    with world.group():
        for rank in left:
            world.check("ncclCommShrink", rank.comm, excluded, 1, ctypes.byref(made[rank.rank]), None, flags)
    for rank in left:
        rank.synchronize()
        assert rank.async_error() == (REMOTE_ERROR if flags == SHRINK_ABORT else SUCCESS)
    child = world_of([made[r].value for r in (0, 2, 3)], [0, 2, 3])
    works(child)
    for rank in world.ranks:
        world.check("ncclCommAbort", rank.comm)
    works(child)
    child.close()


@pytest.mark.parametrize("flags", [0, SHRINK_ABORT])
def test_shrink(flags: int, programs: Path, tmp_path: Path) -> None:
    nccl_world.run(is_shrunk, flags, programs=programs, log=tmp_path, GC3_COMM_TIMEOUT="3600")
    assert served(tmp_path)[1] == 0


def is_revoked() -> None:
    world = World(2)
    works(world)
    case = Case("allreduce", 2, 300, "int32", [False] * 2)
    assert case.put(world.ranks[0]) == SUCCESS  # waits for rank 1
    for rank in world.ranks:
        world.check("ncclCommRevoke", rank.comm, 0)
        rank.synchronize()
        assert case.put(rank) != SUCCESS
    for rank in world.ranks:
        world.check("ncclCommDestroy", rank.comm)


def test_revoke(programs: Path) -> None:
    nccl_world.run(is_revoked, programs=programs, GC3_COMM_TIMEOUT="3600")


def does_not_block(collectives: list[str]) -> None:
    world = World(2, config=Config(blocking=False))
    first = world.ranks[0]
    # NCCL refuses a call of a communicator that is being made; the overlay asks again at the next one.
    case = Case(collectives[0], 2, 300, "int32", [False] * 2)
    assert case.put(first) == INVALID_ARGUMENT
    with world.group():
        assert [case.put(rank) for rank in world.ranks] == [INVALID_ARGUMENT] * 2
    for rank in world.ranks:
        assert rank.wait() == SUCCESS
    for collective in collectives * 2:
        works(world, collective)
    case = Case(collectives[0], 2, 300, "int32", [False] * 2)  # one thread for both, in a group
    world.check("ncclGroupStart")
    assert [case.put(rank) for rank in world.ranks] == [SUCCESS] * 2
    assert world.nccl.ncclGroupEnd() in (SUCCESS, IN_PROGRESS)
    for rank in world.ranks:
        assert rank.wait() == SUCCESS
        rank.synchronize()
    case.check()
    for rank in world.ranks:
        assert world.nccl.ncclCommFinalize(rank.comm) in (SUCCESS, IN_PROGRESS)
    for rank in world.ranks:
        assert rank.wait() == SUCCESS
        world.check("ncclCommDestroy", rank.comm)


def test_non_blocking_communicators(programs: Path, tmp_path: Path) -> None:
    # Those of the second kind are NCCL's, which answers ncclInProgress.
    nccl_world.run(does_not_block, ["allreduce", "alltoall"], programs=programs, log=tmp_path)
    assert served(tmp_path) == (4 + 2, 4)  # without those that were refused


def is_impatient() -> None:
    world = World(2, config=Config(blocking=False))
    for rank in world.ranks:
        assert rank.wait() == SUCCESS
    made = [ctypes.c_void_p() for _ in range(2)]
    world.check("ncclGroupStart")
    for rank, child in zip(world.ranks, made, strict=True):
        world.check("ncclCommSplit", rank.comm, 0, 0, ctypes.byref(child), None)
    assert world.nccl.ncclGroupEnd() == IN_PROGRESS
    case = Case("allreduce", 2, 300, "int32", [False] * 2)
    for rank in world.ranks:  # too early, and neither lost nor fatal
        assert case.put(rank) == INVALID_ARGUMENT
    for rank in world.ranks:
        assert rank.wait() == SUCCESS
    works(world)
    child = world_of([m.value for m in made], [0, 1])
    works(child)
    child.close()
    world.check("ncclGroupStart")  # and when the overlay knows the communicator, but not this kind of call
    for rank, again in zip(world.ranks, made, strict=True):
        world.check("ncclCommSplit", rank.comm, 0, 0, ctypes.byref(again), None)
    assert world.nccl.ncclGroupEnd() == IN_PROGRESS
    for rank in world.ranks:
        assert Case("allgather", 2, 300, "int32", [False] * 2).put(rank) == INVALID_USAGE
        assert "ncclCommGetAsyncError" in world.last_error()
    for rank in world.ranks:
        assert rank.wait() == SUCCESS
    works(world, "allgather")
    for m in made:
        world.check("ncclCommDestroy", m)
    for rank in world.ranks:
        world.check("ncclCommAbort", rank.comm)


def test_a_call_while_another_is_in_progress(programs: Path, tmp_path: Path) -> None:
    nccl_world.run(is_impatient, programs=programs, log=tmp_path)
    assert served(tmp_path) == (6, 0)


def complete(size: int, count: int = 1) -> list[World]:
    """Non-blocking communicators whose ranks are all in this thread, and which have made no call."""
    worlds = [World(size, config=Config(blocking=False)) for _ in range(count)]
    for world in worlds:
        assert [rank.wait() for rank in world.ranks] == [SUCCESS] * size
    return worlds


def first_calls_wait_for_nobody() -> None:
    worlds = complete(2, 2)
    for collective in ("allreduce", "allgather"):  # compares tables, prepares a program; only the latter
        cases = [Case(collective, 2, 300, "int32", [False] * 2, seed=s) for s in range(2)]
        # One thread, in another order on each rank.
        for rank, world in ((0, 0), (0, 1), (1, 1), (1, 0)):
            assert cases[world].put(worlds[world].ranks[rank]) == IN_PROGRESS
            if rank == 0:
                waiting = worlds[world].ranks[0]
                assert waiting.async_error() == IN_PROGRESS
                assert cases[world].put(waiting) == INVALID_USAGE
                assert "ncclCommGetAsyncError" in worlds[world].last_error()
                assert worlds[world].nccl.ncclCommFinalize(waiting.comm) == INVALID_USAGE
        for world, case in zip(worlds, cases, strict=True):
            for rank in world.ranks:
                assert rank.wait() == SUCCESS
                rank.synchronize()
            case.check()
    # A group of calls of both: of a program, and of NCCL.
    cases = [Case("broadcast", 2, 300, "int32", [False] * 2), Case("alltoall", 2, 300, "int32", [False] * 2)]
    for r in range(2):
        worlds[0].check("ncclGroupStart")
        for world, case in zip(worlds, cases, strict=True):
            assert case.put(world.ranks[r]) == SUCCESS
        assert worlds[0].nccl.ncclGroupEnd() == IN_PROGRESS
        for world in worlds:
            assert r == 1 or world.ranks[0].async_error() == IN_PROGRESS
    for world, case in zip(worlds, cases, strict=True):
        for rank in world.ranks:
            assert rank.wait() == SUCCESS
            rank.synchronize()
        case.check()
        for rank in world.ranks:
            world.check("ncclCommDestroy", rank.comm)


def test_first_calls_of_non_blocking_communicators_do_not_block(programs: Path, tmp_path: Path) -> None:
    nccl_world.run(first_calls_wait_for_nobody, programs=programs, log=tmp_path, GC3_COMM_TIMEOUT="3600")
    assert served(tmp_path) == (8 + 2, 2)


def ends_while_in_progress(how: str) -> None:
    (world,) = complete(2)
    works(world, "allgather")
    (fresh,) = complete(2)
    # With ncclCommAbort, the second one waits for its other rank.
    cases = {of: Case("allreduce", 2, 300, "int32", [False] * 2) for of in (world, fresh)}
    for of, case in cases.items():
        for rank in of.ranks if how == "ncclCommDestroy" or of is world else of.ranks[:1]:
            assert case.put(rank) == IN_PROGRESS
    for of, case in cases.items():
        for rank in of.ranks:
            of.check(how, rank.comm)
        for rank in of.ranks:
            rank.synchronize()
        if how == "ncclCommDestroy":
            case.check()


@pytest.mark.parametrize("how", ["ncclCommAbort", "ncclCommDestroy"])
def test_the_end_of_a_communicator_whose_first_call_is_in_progress(how: str, programs: Path) -> None:
    nccl_world.run(ends_while_in_progress, how, programs=programs, GC3_COMM_TIMEOUT="3600")


def waits_for_a_rank_in_vain() -> None:
    (world,) = complete(2)
    case = Case("allreduce", 2, 300, "int32", [False] * 2)
    assert case.put(world.ranks[0]) == IN_PROGRESS
    assert world.ranks[0].wait() == REMOTE_ERROR
    assert "do not take part" in world.last_error()
    assert case.put(world.ranks[0]) == REMOTE_ERROR
    for rank in world.ranks:
        world.check("ncclCommAbort", rank.comm)


def test_a_first_call_that_another_rank_does_not_make(programs: Path) -> None:
    nccl_world.run(waits_for_a_rank_in_vain, programs=programs, GC3_COMM_TIMEOUT=nccl_world.IN_VAIN)


def waits_through_a_stop() -> None:
    (world,) = complete(2)
    case = Case("allreduce", 2, 300, "int32", [False] * 2)
    assert case.put(world.ranks[0]) == IN_PROGRESS
    stopped = float(nccl_world.IN_VAIN) + 1
    subprocess.run(
        ["/bin/sh", "-c", f"kill -STOP {os.getpid()}; sleep {stopped}; kill -CONT {os.getpid()}"], check=True
    )
    assert case.put(world.ranks[1]) == IN_PROGRESS
    for rank in world.ranks:
        assert rank.wait() == SUCCESS
        rank.synchronize()
    case.check()


def test_a_stop_of_the_process_is_not_counted(programs: Path) -> None:
    nccl_world.run(waits_through_a_stop, programs=programs, GC3_COMM_TIMEOUT=nccl_world.IN_VAIN)


def ends_in_a_group(how: str) -> None:
    world, other = World(2), World(2)
    works(world)
    case = Case("allreduce", 2, 300, "int32", [False] * 2)
    factor, op = np.full(1, 3, "int32"), ctypes.c_int()
    world.check("ncclGroupStart")
    for rank in world.ranks:
        assert case.put(rank) == SUCCESS
        at = ctypes.c_void_p(factor.ctypes.data)
        world.check("ncclRedOpCreatePreMulSum", ctypes.byref(op), at, 2, 1, rank.comm)
        data, end = ctypes.c_void_p(case.take[0].ctypes.data), (ctypes.c_size_t(1), 2, op, rank.comm, rank.streams[0])
        with world.driver.on(rank.rank):
            world.check("ncclAllReduce", data, data, *end)
        world.check("ncclRedOpDestroy", op, rank.comm)  # waits for the end of the group, too
    for rank in world.ranks:
        world.check(how, rank.comm)
    assert world.nccl.ncclGroupEnd() == INVALID_USAGE
    assert "a communicator that has ended" in world.last_error()
    if how == "ncclCommFinalize":
        for rank in world.ranks:
            world.check("ncclCommDestroy", rank.comm)
    works(other)  # the group has ended
    other.close()


@pytest.mark.parametrize("how", ["ncclCommAbort", "ncclCommDestroy", "ncclCommFinalize"])
def test_the_end_of_a_communicator_with_calls_in_an_open_group(how: str, programs: Path) -> None:
    nccl_world.run(ends_in_a_group, how, programs=programs)


def is_never_completed() -> None:
    driver = nccl_world.Driver()
    library = ctypes.CDLL(str(nccl.library()))
    comm, name = ctypes.c_void_p(), (ctypes.c_char * 128)()
    library.ncclGetUniqueId(name)

    class Id(ctypes.Structure):
        _fields_ = (("bytes", ctypes.c_char * 128),)

    with driver.on(0):
        config = Config(blocking=False)
        answer = library.ncclCommInitRankConfig(ctypes.byref(comm), 2, Id(name.value), 0, ctypes.byref(config))
    assert answer == IN_PROGRESS
    assert library.ncclCommAbort(comm) == SUCCESS  # rank 1 never comes


def test_abort_while_a_communicator_is_made(programs: Path) -> None:
    nccl_world.run(is_never_completed, programs=programs)


def scaled(residence: int) -> None:
    world = World(2)
    works(world)
    factor = np.full(1, 3, "int32")
    give = [np.full(10, 5 + r, "int32") for r in range(2)]
    take = [np.zeros(10, "int32") for _ in range(2)]
    plain = Case("allreduce", 2, 300, "int32", [False] * 2)
    ops = [ctypes.c_int() for _ in range(2)]
    with world.group():
        for rank, op, send, recv in zip(world.ranks, ops, give, take, strict=True):
            at = [ctypes.c_void_p(a.ctypes.data) for a in (factor, send, recv)]
            with world.driver.on(rank.rank):
                world.check("ncclRedOpCreatePreMulSum", ctypes.byref(op), at[0], 2, residence, rank.comm)
                end = (ctypes.c_size_t(10), 2, op, rank.comm, rank.streams[0])
                assert plain.put(rank) == SUCCESS  # of the same communicator
                world.check("ncclAllReduce", at[1], at[2], *end)
                world.check("ncclRedOpDestroy", op, rank.comm)  # as soon as the call has returned
    for rank in world.ranks:
        rank.synchronize()
        assert world.nccl.ncclRedOpDestroy(ops[rank.rank], rank.comm) == INVALID_ARGUMENT
    assert [list(t) for t in take] == [[33] * 10] * 2
    plain.check()
    works(world)
    world.close()


@pytest.mark.parametrize("residence", [0, 1])
def test_operations_of_the_user(residence: int, programs: Path, tmp_path: Path) -> None:
    nccl_world.run(scaled, residence, programs=programs, log=tmp_path)
    assert served(tmp_path) == (4, 4)


def joined_by_several_ids() -> None:
    driver = nccl_world.Driver()
    library = ctypes.CDLL(str(nccl.library()))
    comms, ids = [ctypes.c_void_p() for _ in range(2)], (ctypes.c_char * 256)()
    library.ncclGetUniqueId(ids)
    assert library.ncclGroupStart() == SUCCESS
    for r, comm in enumerate(comms):
        with driver.on(r):
            assert library.ncclCommInitRankScalable(ctypes.byref(comm), 2, r, 2, ids, None) == SUCCESS
    assert library.ncclGroupEnd() == SUCCESS
    world = world_of([comm.value for comm in comms], [0, 1])
    works(world)
    world.close()


def test_init_rank_scalable(programs: Path, tmp_path: Path) -> None:
    nccl_world.run(joined_by_several_ids, programs=programs, log=tmp_path)
    assert served(tmp_path) == (2, 0)


def one_call() -> None:
    world = World(2)
    works(world)
    world.close()


def test_settings_that_are_wrong_are_reported(programs: Path, tmp_path: Path) -> None:
    log = tmp_path / "new" / "log"
    said = nccl_world.run(one_call, programs=tmp_path / "nowhere", log=log)
    assert "NCCL serves all calls: GC3-I001 cannot read the file" in said
    assert "cannot make the folder" in said
    log = tmp_path / "log"  # is made
    nccl_world.run(one_call, programs=programs, log=log)
    assert served(log) == (2, 0)
