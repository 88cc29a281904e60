"""Objects of Python among ranks, and functions on ranks that `gc3.spawn` starts."""

from __future__ import annotations

import functools
import io
import os
import signal
import subprocess
import sys
import threading
from concurrent import futures
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gc3
import ranks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def objects_of(rank: int) -> dict[str, Any]:
    return {"rank": rank, "text": "é" * rank, "array": np.arange(rank), "none": None}


@pytest.mark.parametrize("size", [1, 2, 3])
def test_objects_reach_their_ranks(size: int) -> None:
    def body(comm: gc3.Communicator) -> None:
        def same(found: Any, rank: int) -> bool:
            return repr(found) == repr(objects_of(rank))

        own = objects_of(comm.rank)
        for root in range(comm.size):
            assert same(comm.broadcast_object(own if comm.rank == root else None, root), root)
            gathered = comm.gather_object(own, root)
            assert (gathered is None) == (comm.rank != root)
            assert gathered is None or all(same(g, r) for r, g in enumerate(gathered))
            given = [objects_of(r) for r in range(comm.size)] if comm.rank == root else None
            assert same(comm.scatter_object(given, root), comm.rank)
        assert all(same(g, r) for r, g in enumerate(comm.all_gather_object(own)))

    ranks.call(body, size)


def test_an_object_is_received_while_another_thread_is_in_a_call() -> None:
    ranks.run(ranks.program("beside_a_call"), 2)


@pytest.mark.parametrize("call", ["broadcast", "all_gather", "gather", "scatter"])
def test_numbers_in_place_of_an_object_are_an_error_on_both_ranks(call: str) -> None:
    def instead(comm: gc3.Communicator) -> None:  # what it looks like
        if call in ("broadcast", "scatter"):
            length = comm.broadcast(np.zeros(1 if call == "broadcast" else 2, np.int64))
            comm.broadcast(np.zeros(length[0], np.uint8))
        else:
            comm.all_gather(np.zeros(1, np.int64))

    def body(comm: gc3.Communicator) -> str:
        with pytest.raises(gc3.CommError, match="GC3-R010") as caught:
            instead(comm) if comm.rank else getattr(comm, f"{call}_object")([b"some", b"bytes"])
        return str(caught.value)

    for said in ranks.call(body, 2):
        assert "length of a gc3 object" in said, said


def test_objects_from_rank_to_rank() -> None:
    def body(comm: gc3.Communicator) -> Any:
        found: Any = None
        if comm.rank == 0:
            with pytest.raises(gc3.CommError, match="GC3-R003"):
                comm.recv_object(2, tag=8, timeout=0.01)
            found = [comm.recv_object(2), *sorted(comm.recv_object(tag=7) for _ in range(2))]
        else:
            if comm.rank == 2:
                comm.send_object({"text": "é" * 100_000}, 0)
            with pytest.raises(gc3.UserError, match="GC3-R023"):
                comm.send_object(threading.Lock(), 0)
            comm.send_object(comm.rank, 0, tag=7)
        comm.barrier()
        return found

    assert ranks.call(body, 3) == [[{"text": "é" * 100_000}, 1, 2], None, None]


def test_threads_of_one_tag_send_and_receive_whole_objects() -> None:
    def body(comm: gc3.Communicator) -> list[tuple[int, int]]:
        def move(thread: int) -> list[tuple[int, int]]:
            sent = [(thread, turn) for turn in range(50)]
            for number in sent:
                if comm.rank == 0:
                    comm.send_object((number, b"x" * (thread * 50_000)), 1, tag=3)
            return sent if comm.rank == 0 else [comm.recv_object(tag=3)[0] for _ in sent]

        with futures.ThreadPoolExecutor(4) as threads:
            found = sorted(number for moved in threads.map(move, range(4)) for number in moved)
        comm.barrier()
        return found

    first, second = ranks.call(body, 2)
    assert first == second == [(thread, turn) for thread in range(4) for turn in range(50)]


@pytest.mark.parametrize("as_object", [True, False])
def test_an_object_is_no_array_of_bytes(as_object: bool) -> None:
    def body(comm: gc3.Communicator) -> str:
        if comm.rank == 0:
            comm.send_object("an object", 1) if as_object else comm.send(np.zeros(1000, np.uint8), 1)
        receive = (lambda: comm.recv(np.empty(1000, np.uint8))) if as_object else comm.recv_object
        with pytest.raises(gc3.CommError, match="GC3-R010") as found:
            receive() if comm.rank > 0 else comm.barrier()
        return str(found.value)

    sent, received = ("an object", "uint8") if as_object else ("uint8", "an object")
    for text in ranks.call(body, 2):
        assert f"sends {sent}, and rank 1 (process" in text, text
        assert f"receives {received}\n" in text, text


def test_what_mpi_has_and_gc3_has_not() -> None:
    """The ways of docs/coming_from.md."""

    def body(comm: gc3.Communicator) -> None:
        r, n = comm.rank, comm.size
        x = np.array([r, (r + 1) % n, 1 - r])
        everything = np.array([[k, (k + 1) % n, 1 - k] for k in range(n)])
        every = comm.all_gather(x[None])
        assert (every.min(0).tolist(), every.argmin(0).tolist()) == ([0, 0, 2 - n], [0, n - 1, n - 1])
        assert np.array_equal(np.add.accumulate(every)[r], everything[: r + 1].sum(0))
        assert np.array_equal(every[:r].sum(0), everything[:r].sum(0))
        alternating = everything[0] - everything[1] - everything[2]
        assert np.array_equal(functools.reduce(lambda a, b: a - b, every), alternating)
        b = (x != 0).astype("int32")
        truth = everything != 0
        assert np.array_equal(comm.all_reduce(b, op="min"), truth.all(0))
        assert np.array_equal(comm.all_reduce(b, op="max"), truth.any(0))
        assert np.array_equal(comm.all_reduce(b, op="sum") % 2, np.logical_xor.reduce(truth))
        comm.all_reduce_async(np.zeros(1)).wait()
        counts = [3, 1, 2]
        part = comm.scatter_v(np.arange(6.0) if r == 0 else None, counts, out=np.empty(counts[r]))
        assert part.tolist() == [[0, 1, 2], [3], [4, 5]][r]
        grid = np.zeros((2, 2))
        comm.send(np.arange(4.0)[::2], (r + 1) % n)
        part = np.empty(9)
        got = comm.recv(part)
        grid[:, 0] = part[: got.count]
        assert (got.source, grid[:, 0].tolist()) == ((r - 1) % n, [0, 2])

    ranks.call(body, 3)


def test_one_large_object_among_small_ones_is_not_padded_for_all() -> None:
    def body(comm: gc3.Communicator) -> list[int]:
        own = b"x" * (1_000_000 if comm.rank == 1 else 5)
        found = [len(part) for part in comm.all_gather_object(own)]
        assert (comm.gather_object(own, 2) is None) == (comm.rank != 2)
        part = comm.scatter_object([b"", b"y" * 1_000_000, b"z"] if comm.rank == 0 else None)
        return [*found, len(part)]

    expected = [[5, 1_000_000, 5, n] for n in (0, 1_000_000, 1)]
    assert ranks.call(body, 3) == expected


def test_an_object_that_cannot_be_sent_is_an_error_on_all_ranks_and_they_continue() -> None:
    def body(comm: gc3.Communicator) -> tuple[list[str], list[int]]:
        bad = threading.Lock() if comm.rank == 1 else 0
        calls: Sequence[Any] = (
            lambda: comm.broadcast_object(bad, 1),
            lambda: comm.all_gather_object(bad),
            lambda: comm.gather_object(bad),
            lambda: comm.scatter_object([bad] * comm.size, 1),
            lambda: comm.scatter_object([1], 1),
        )
        said: list[str] = []
        for call in calls:
            try:
                call()
            except gc3.Gc3Error as problem:
                said.append(problem.code + " " + problem.message)
        return said, comm.all_gather_object(comm.rank)

    (other, all_there), (own, _) = ranks.call(body, 2)
    assert all_there == [0, 1]
    assert other == ["GC3-R024 a rank has failed: rank 1 has no object to send; its own error says why"] * 5
    assert all("GC3-R023 an object that cannot be sent: " in text for text in own)
    assert all("lock: cannot pickle" in text for text in own[:4])
    assert own[4].endswith("1 objects for 2 ranks")


class Unreadable:
    """Can be pickled, but not read."""

    def __reduce__(self) -> Any:  # noqa: D105
        return int, ("no number",)


def test_an_object_that_cannot_be_read_is_an_error_that_names_its_rank() -> None:
    def body(comm: gc3.Communicator) -> str:
        try:
            comm.broadcast_object(Unreadable() if comm.rank == 0 else None)
        except gc3.UserError as problem:
            return problem.message
        return ""

    root, other = ranks.call(body, 2)
    assert root == ""
    assert "of rank 0, when it is read: ValueError: invalid literal" in other


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_objects_of_another_user_are_not_read() -> None:
    root, _ = ranks.run(ranks.program("object_of_another_user"), 2)
    assert root.startswith("GC3-R022 a rank is of another user: rank 1 (process ")


@pytest.mark.parametrize("call", ["broadcast", "all_gather", "gather", "scatter"])
def test_a_rank_stays_in_a_call_until_the_others_have_seen_whose_it_is(call: str) -> None:
    ranks.run(ranks.program("object_read_late"), 2, arguments=[call])


def test_an_object_of_a_rank_that_has_ended_is_not_read() -> None:
    """Whose data it was cannot be known any more; rank 0 says that, and not that it was of another user."""
    root, _ = ranks.run(ranks.program("object_read_late"), 2, arguments=["send"])
    assert root.startswith("GC3-R009 a rank is gone: rank 1 (process ")
    assert "has ended, so that it is unknown whose it was" in root


# spawn


def test_arguments_results_and_closures_travel() -> None:
    outside = 10

    class Local:
        def __init__(self, value: int) -> None:
            self.value = value

    def body(comm: gc3.Communicator, first: int, *, named: str) -> Local:
        return Local(outside + first + comm.rank + len(named))

    found = gc3.spawn(body, 3, 100, named="abc")
    assert [f.value for f in found] == [113, 114, 115]


@pytest.mark.python_only
def test_the_first_failure_is_reported_with_traceback_and_cause() -> None:
    def body(comm: gc3.Communicator) -> None:
        comm.barrier()
        if comm.rank == 2:
            raise KeyError("of the user")
        comm.all_reduce(np.ones(10))  # fails because rank 2 is gone

    with pytest.raises(gc3.CommError) as caught:
        gc3.spawn(body, 4)
    assert caught.value.message == "a rank has failed: rank 2: KeyError: 'of the user'"
    assert "raise KeyError(" in str(caught.value)
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize(
    ("end", "how"),
    [
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "was ended by SIGKILL"),
        pytest.param(lambda: os._exit(3), "has ended with status 3", marks=pytest.mark.python_only),
        pytest.param(lambda: sys.exit(4), "SystemExit: 4", marks=pytest.mark.python_only),
    ],
)
def test_a_rank_that_ends_is_reported(end: Callable[[], None], how: str) -> None:
    def body(comm: gc3.Communicator) -> None:
        if comm.rank == 1:
            end()
        comm.barrier()

    with pytest.raises(gc3.CommError, match="rank 1: .*" + how):
        gc3.spawn(body, 3)


@pytest.mark.python_only
def test_the_output_of_ranks_appears_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a notebook, whose sys.stdout is not a file."""
    printed = io.StringIO()
    monkeypatch.setattr(sys, "stdout", printed)

    def body(comm: gc3.Communicator) -> None:
        os.write(1, f"rank {comm.rank} says é\n".encode() * 10_000)

    gc3.spawn(body, 2)
    assert sorted(printed.getvalue().splitlines()) == ["rank 0 says é"] * 10_000 + ["rank 1 says é"] * 10_000


@pytest.mark.parametrize(
    ("ranks_", "fn", "code"),
    [
        (0, print, "GC3-L017"),
        (2, None, "GC3-L017"),
        (2, lambda: 0, "GC3-L017"),
        (2, threading.Lock().acquire, "GC3-R023"),
    ],
)
def test_mistakes(ranks_: int, fn: Any, code: str) -> None:
    with pytest.raises(gc3.UserError) as caught:
        gc3.spawn(fn, ranks_)
    assert caught.value.code == code


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
@pytest.mark.python_only
def test_no_rank_is_left_when_the_script_is_interrupted_or_killed(how: signal.Signals) -> None:
    """The functions of a script that has no file."""
    text = ranks.program("interrupted_spawn").read_text()
    with subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True) as script:
        assert script.stdout is not None
        assert sorted(script.stdout.readline() for _ in range(2)) == ["0\n", "1\n"]
        started = ranks.children(script.pid)
        assert len(started) == 2
        script.send_signal(how)
        rest = script.stdout.read()  # ends once all processes that could print have ended
        script.wait(ranks.LONGEST)
    assert rest == ("interrupted\n" if how == signal.SIGINT else "")
    ranks.until(lambda: not any(Path(f"/proc/{pid}/task").exists() for pid in started))
    assert not any(Path(f"/proc/{pid}/task").exists() for pid in started)
