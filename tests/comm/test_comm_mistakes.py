"""Mistakes with communicators: each is one clear error, and no rank waits."""

from __future__ import annotations

import contextlib
import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import gc3
import ranks
from gc3 import errors
from gc3.algorithms import load
from gc3.cli.main import main


@pytest.fixture(scope="module", name="comm")
def alone() -> Any:
    with gc3.init(rank=0, size=1, job="mistakes") as comm:
        yield comm


def elsewhere() -> object:
    """An array on a GPU, in DLPack's form."""

    def refuse(*_: object, **__: object) -> object:
        raise BufferError("on the GPU")

    return type("Elsewhere", (), {"__dlpack__": refuse, "__dlpack_device__": lambda _: (2, 0)})()


READ_ONLY = np.arange(4.0)
READ_ONLY.flags.writeable = False
MASKED = np.ma.masked_array([1.0, 2.0], [False, True])
HUGE = np.broadcast_to(np.float32(1), (1 << 50,))

MISTAKES: list[tuple[Callable[[Any], object], str, str]] = [
    (lambda c: c.all_reduce(None), "GC3-R001", "expected an array as this rank's input, but got None"),
    (lambda c: c.all_reduce("abc"), "GC3-M002", "<U3"),
    (lambda c: c.all_reduce([[1], [1, 2]]), "GC3-R001", "a list that is no array"),
    (lambda c: c.all_reduce(np.zeros(3, ">f4")), "GC3-M002", ">f4"),
    (lambda c: c.all_reduce(elsewhere()), "GC3-R001", "on the GPU"),
    (lambda c: c.all_reduce(READ_ONLY, out=READ_ONLY), "GC3-R001", "read-only"),
    (lambda c: c.all_reduce(READ_ONLY, out=b"abc"), "GC3-R001", "read-only"),
    (lambda c: c.all_reduce(MASKED), "GC3-R001", "mask would be lost"),
    (lambda c: c.all_reduce(np.ones(2), out=MASKED), "GC3-R001", "mask would be lost"),
    (lambda c: c.all_reduce(HUGE), "GC3-R006", "Unable to allocate"),
    (lambda c: c.broadcast(np.ones(1), root=0.5), "GC3-L007", "root=0.5; expected a whole number from 0 to 0"),
    (lambda c: c.reduce(np.ones(1), root="0"), "GC3-L007", "root='0'"),
    (lambda c: c.split("red"), "GC3-L017", "color='red'"),
    (lambda c: c.split(-1), "GC3-L017", "color=-1"),
    (lambda c: c.split(0, 2**64), "GC3-L017", "key=18446744073709551616"),
    (lambda c: c.explain("gossip", 3), "GC3-M001", "gossip"),
    (lambda c: c.explain("allreduce", 1.5), "GC3-L017", "count=1.5"),
    (lambda c: c.explain("broadcast", 1, root=1), "GC3-L007", "root=1"),
    # An array has __index__, which raises.
    (lambda c: c.reduce(np.ones(1), root=READ_ONLY), "GC3-L007", "root=array("),
    (lambda c: c.explain("broadcast", 1, root=READ_ONLY), "GC3-L007", "root=array("),
    (lambda c: c.broadcast_object(1, root=READ_ONLY), "GC3-L007", "root=array("),
    (lambda c: c.scatter_object([1], root="0"), "GC3-L007", "root='0'"),
    (lambda c: c.send_object(1, READ_ONLY), "GC3-L007", "to array("),
    (lambda c: c.recv_object(READ_ONLY), "GC3-L007", "source array("),
    (lambda c: c.recv_object(0, READ_ONLY), "GC3-L017", "tag array("),
    (lambda c: c.load(7), "GC3-L017", "7 is not a program"),
    (lambda c: c.load("x.gc3", min_size=2, max_size=1), "GC3-L017", "max_size=1"),
    (lambda c: c.run("x.gc3", [1.0]), "GC3-L017", "'x.gc3' is not a program"),
    (lambda c: c.empty(-1), "GC3-R001", "shape=-1"),
    (lambda c: c.empty((1 << 40, 1 << 40)), "GC3-R006", "bytes="),
    (lambda c: c.empty(1 << 45), "GC3-R006", "bytes of shared memory for an array that all ranks can read"),
    (lambda c: c.time("allreduce", -1), "GC3-L017", "count=-1"),
    (lambda c: c.time("allreduce", 1, iterations=0), "GC3-L017", "iterations=0"),
    (lambda c: c.time("allreduce", 1, iterations=2**32 - 1), "GC3-R002", "5 + 4294967295 iterations"),
    (lambda c: c.time("allreduce", 1, warmup=2**32 - 1, iterations=2), "GC3-R002", "4294967295 + 2 iterations"),
    (lambda c: c.time("allreduce", 4, "float64", buffers=(READ_ONLY, READ_ONLY)), "GC3-R001", "read-only"),
    (lambda c: c.time("allreduce", 4, "float64", buffers=(READ_ONLY, [0.0] * 4)), "GC3-R001", "out is a list"),
    (lambda _: gc3.init(rank=0), "GC3-L017", "give both, or neither"),
    (lambda _: gc3.init(rank="0", size=1), "GC3-L007", "rank='0'"),
    (lambda _: gc3.init(rank=2, size=2), "GC3-L007", "rank=2"),
    (lambda _: gc3.init(rank=0, size=1, timeout=float("nan")), "GC3-R002", "timeout=nan"),
    (lambda _: gc3.init(rank=0, size=1, table=5), "GC3-I001", "5"),  # pyright: ignore[reportArgumentType]
]


@pytest.mark.parametrize(("call", "code", "said"), MISTAKES, ids=[said for *_, said in MISTAKES])
def test_mistakes_are_reported(comm: Any, call: Callable[[Any], object], code: str, said: str) -> None:
    with pytest.raises(errors.UserError) as caught:
        call(comm)
    assert caught.value.code == code
    assert said in str(caught.value)
    assert comm.all_reduce(2) == 2  # no harm was done


def test_hints_lead_to_what_is_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("GC3_RENDEZVOUS", "nowhere"), ("RANK", "0"), ("WORLD_SIZE", "2"), ("GC3_SECRET", "ab" * 32)):
        monkeypatch.setenv(name, value)
    with pytest.raises(errors.UserError, match="GC3_RENDEZVOUS='nowhere' in the environment: expected host:port"):
        gc3.init()
    monkeypatch.setenv("GC3_RENDEZVOUS", "a name:5")
    with pytest.raises(errors.UserError, match=r"'a name:5' \(of GC3_RENDEZVOUS, or MASTER_ADDR\): ") as caught:
        gc3.init()
    assert caught.value.code == "GC3-R002"
    assert "`gc3 env`" in caught.value.hint
    assert "docs/hosts.md" in caught.value.hint
    with pytest.raises(errors.UserError) as caught:
        gc3.init(rank=0)
    assert caught.value.code == "GC3-L017"
    assert "help(FUNCTION)" in caught.value.hint


def test_inputs_of_every_kind(comm: Any) -> None:
    for given, want in (
        (b"ab", [97, 98]),
        (READ_ONLY, [0, 1, 2, 3]),
        (READ_ONLY[::-2], [3, 1]),
        (memoryview(bytearray(3))[::2], [0, 0]),
        ([], []),
        (np.zeros((0, 5), np.int8), np.zeros((0, 5))),
        (np.float32(3), 3),
        (np.asfortranarray([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
    ):
        assert np.array_equal(comm.all_reduce(given), want)


class Measured(np.ndarray):
    """An array of a user's own class."""


UNALIGNED = np.frombuffer(b"x" + np.arange(3, dtype=np.float64).tobytes(), np.float64, offset=1)


def test_arrays_that_are_described_the_long_way(comm: Any) -> None:
    for given in (
        np.arange(3.0).view(Measured),
        np.arange(3).astype(np.dtype(np.int64, metadata={"unit": "s"})),  # equal to a known type, and another object
        np.arange(3, dtype=np.longlong),
        UNALIGNED,
        np.float64([0, 1, 2])[None].T[:, 0],
    ):
        assert comm.all_reduce(given).tolist() == [0, 1, 2]
        assert comm.all_gather(given, out=np.empty(3, given.dtype)).tolist() == [0, 1, 2]
    grid = np.zeros((2, 3, 4), np.int8)
    assert comm.all_gather(grid).shape == comm.reduce_scatter(grid).shape == grid.shape
    assert comm.all_gather(7).shape == (1,)
    assert comm.all_reduce(grid, "".join(["m", "ax"])).shape == grid.shape
    assert comm.broadcast(grid, root=np.int64(0)) is grid
    assert comm.broadcast(READ_ONLY).tolist() == READ_ONLY.tolist()
    assert comm.reduce(grid, out=grid) is grid  # only the root could tell that it is in place


def test_mistakes_of_asynchronous_calls_are_reported_at_once(comm: Any) -> None:
    for start in (
        lambda: comm.all_reduce_async(None),
        lambda: comm.all_reduce_async([1.0], op="mean"),
        lambda: comm.all_reduce_async([1.0], out=np.ones(2)),
        lambda: comm.scatter_async(3),
    ):
        with pytest.raises(errors.UserError):
            start()
    for done in (lambda handle: handle, errors.shown, [].append):  # of one argument
        for start in (
            lambda: comm.all_reduce_async([1.0], done=done),  # noqa: B023 - called here
            lambda: comm.all_gather_v_async([1.0], done=done),  # noqa: B023 - called here
            lambda: comm.coalesce().start(done),  # noqa: B023 - called here
            lambda: comm.isend([1.0], 0, done=done),  # noqa: B023 - called here
            lambda: comm.irecv(np.ones(1), done=done),  # noqa: B023 - called here
        ):
            with pytest.raises(errors.UserError, match=r"GC3-L017 .*: done is called without arguments: "):
                start()
    with pytest.raises(errors.UserError, match="missing a required argument: 'x'"):
        comm.all_reduce()
    with pytest.raises(errors.UserError, match="given int, list"):
        type(comm).all_reduce(3, [1.0])


def test_an_exception_of_the_compiler_reaches_the_caller(tmp_path: Path) -> None:
    script = tmp_path / "mine.py"
    script.write_text(
        "import gc3\n@gc3.algorithm('allreduce')\ndef mine(R: int) -> None:\n    raise KeyboardInterrupt\n"
    )
    row = {"collective": "allreduce", "program": {"algorithm": f"{script}:mine"}}
    table = tmp_path / "t.json"
    table.write_text(json.dumps({"format": "gc3-selection-1", "rows": [row]}))
    with gc3.init(rank=0, size=1, job="compiler", table=table) as own:
        with pytest.raises(KeyboardInterrupt):
            own.all_reduce([1.0])
        with pytest.raises(KeyboardInterrupt):
            own.all_reduce_async([1.0])
        script.write_text("import gc3\n")
        assert own.all_gather([1.0]).tolist() == [1.0]


@pytest.mark.parametrize("how", ["an exception", "an exception in a with block", "Ctrl-C"])
def test_a_rank_that_ends_during_a_call_does_not_wait_for_it(how: str, tmp_path: Path) -> None:
    ended = tmp_path / "ended"
    world = ranks.start(ranks.program("end_with_a_pending_call"), 2, arguments=[how, ended])
    first = world.processes[0]
    assert first.stdout is not None
    assert first.stdout.readline() == "ready\n"
    if how == "Ctrl-C":
        first.send_signal(signal.SIGINT)
    try:
        first.wait(20)
    finally:
        ended.touch()
        (status, told), (other, said) = world.finish()
    assert status != 0
    assert told.count("Traceback") <= 1  # output of the first line is not here
    assert other == 0
    assert "rank 0 (process" in said


def test_calls_without_a_wait_are_finished() -> None:
    ranks.run(ranks.program("calls_without_a_wait"), 2)


def test_a_fork_can_neither_wait_for_nor_end_a_call_of_its_parent(tmp_path: Path) -> None:
    """A fork does not have the thread that runs the call. It cannot affect the call of the parent."""
    ranks.run(ranks.program("fork_during_a_call"), 2, arguments=[tmp_path / "go_on"])


def test_one_communicator_in_two_threads_and_a_load_during_a_call() -> None:
    ranks.run(ranks.program("threads_and_load"), 2)


def test_a_program_of_another_size_is_refused(comm: Any) -> None:
    with pytest.raises(errors.UserError, match="2 ranks"):
        comm.load(gc3.compile(load("ring_allreduce"), R=2))


@pytest.mark.parametrize("engine", ["threads", pytest.param("processes", marks=pytest.mark.python_only)])
def test_more_iterations_than_can_be_kept_are_refused(engine: str) -> None:
    for settings in ("-w 4294967295 -n 2", "-w 1 -n 4294967295"):
        line = f"bench ring_allreduce:R=2 -b 8 -e 8 --engine {engine} {settings}"
        done = CliRunner().invoke(main, line.split())
        assert done.exit_code == 1
        assert "GC3-R002" in done.stderr
        assert "the most is 16777216" in done.stderr


# Calls that rank 1 of 2 makes with wrong arguments.
CALLS: dict[str, Callable[[Any, bool], object]] = {
    "an array": lambda c, wrong: c.all_reduce("abc" if wrong else np.ones(2)),
    "a size": lambda c, wrong: c.all_gather(np.ones(2), np.ones(3 if wrong else 4)),
    "rows": lambda c, wrong: c.reduce_scatter(np.ones(3 if wrong else 4)),
    "a type": lambda c, wrong: c.all_to_all(np.ones(2), np.ones(2, "int8" if wrong else "float64")),
    "a root": lambda c, wrong: c.broadcast(np.ones(2), 5 if wrong else 0),
    "a reduction": lambda c, wrong: c.reduce(np.ones(2), "gossip" if wrong else "sum"),
    "no out": lambda c, wrong: c.scatter(None if wrong else np.ones(2)),
    "started": lambda c, wrong: c.all_reduce_async("abc" if wrong else np.ones(2)).wait(),
    "noted": lambda c, wrong: c.coalesce().all_reduce("abc") if wrong else c.all_reduce(np.ones(2)),
    "counts": lambda c, wrong: c.all_to_all_v(np.ones(2), [1] if wrong else [1, 1]),
    "started counts": lambda c, wrong: c.all_gather_v_async(np.ones(1), [2, 2] if wrong else [1, 1]).wait(),
    "parts": lambda c, wrong: c.reduce_scatter_v(np.ones(2), None if wrong else [1, 1]),
    "a v root": lambda c, wrong: c.gather_v(np.ones(2), 7 if wrong else 0),
    "what it calls": lambda c, wrong: c.all_reduce_async(np.ones(2), done=print if not wrong else lambda x: x).wait(),
    "the root of an object": lambda c, wrong: c.broadcast_object(1, np.arange(2) if wrong else 0),
    "a time-out": lambda c, wrong: c.barrier(-1.0 if wrong else None),
    "a color": lambda c, wrong: c.split("red" if wrong else 0),
    "a program": lambda c, wrong: c.run(3, np.ones(2)) if wrong else c.all_reduce(np.ones(2)),
    "a file": lambda c, wrong: c.load("nothing.gc3") if wrong else c.all_reduce(np.ones(2)),
    "a list": lambda c, wrong: c.group([1, 1] if wrong else [0, 1]),
    "a keyword": lambda c, wrong: c.all_reduce(np.ones(2), **({"axis": 0} if wrong else {})),
    "a word as time-out": lambda c, wrong: c.barrier("soon" if wrong else None),
    "a keyword of a noted call": lambda c, wrong: (
        c.coalesce().all_reduce(np.ones(2), axis=0) if wrong else c.all_reduce(np.ones(2))
    ),
    "iterations": lambda c, wrong: c.time("allreduce", 8, iterations=0 if wrong else 2),
    "a keyword of time": lambda c, wrong: c.time("allreduce", 8, **({"often": 3} if wrong else {"iterations": 2})),
}


def test_wrong_arguments_on_one_rank_are_told_to_the_others() -> None:
    def body(comm: gc3.Communicator) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for name, call in CALLS.items():
            group = comm.group([0, 1], name=name)  # which ends, and no other
            found[name] = []
            for make in (lambda: call(group, comm.rank == 1), group.barrier):  # noqa: B023 - called here
                try:
                    make()
                except gc3.Gc3Error as problem:
                    found[name].append(str(problem))
        return found

    first, second = ranks.call(body, 2)
    for name in CALLS:
        own, *_ = second[name]
        assert not own.startswith("GC3-R010"), own
        for said in (first[name][-1], second[name][-1]):
            assert said.startswith("GC3-R010 the ranks make different calls: "), said
            assert "a call with wrong arguments: " in said, said


def test_wrong_arguments_on_all_ranks_leave_the_communicator_usable() -> None:
    def body(comm: gc3.Communicator) -> float:
        for call in CALLS.values():
            under_way = comm.all_reduce_async(np.ones(1))
            with contextlib.suppress(gc3.UserError):
                call(comm, True)
            under_way.wait()
        return float(comm.all_reduce(np.ones(1))[0])

    assert ranks.call(body, 2) == [2.0, 2.0]
