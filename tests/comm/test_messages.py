"""Sends and receives between two ranks, from Python."""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np
import pytest

import gc3
import ranks


def test_sends_and_receives_of_every_kind() -> None:
    def body(comm: gc3.Communicator) -> list[str]:
        rank, other = comm.rank, (comm.rank + 1) % comm.size
        before = (comm.rank - 1) % comm.size
        said: list[str] = []
        for count in (0, 1, 7, 5000, 300_001):
            x = np.arange(count, dtype=np.int32) + rank
            out = np.full(count + 2, -1, np.int32)
            # Plain, in turn.
            if rank == 0:
                comm.send(x, other, tag=3)
                status = comm.recv(out, before, 3)
            else:
                status = comm.recv(out, before, 3)
                comm.send(x, other, 3)
            assert (status.source, status.tag, status.count) == (before, 3, count), status
            assert np.array_equal(out[:count], np.arange(count) + before)
            assert out[count:].tolist() == [-1, -1]
            # Started, of any rank and tag.
            out[:] = -1
            receive = comm.irecv(out)
            send = comm.isend(x, other, tag=count)
            assert send.wait() is None
            found = receive.wait()
            assert found is not None
            assert (found.source, found.tag, found.count) == (before, count, count)
            assert receive.test()
            assert send.test()
            assert np.array_equal(out[:count], np.arange(count) + before)
            # At once.
            out[:] = -1
            assert comm.sendrecv(x, other, out, before, tag=1).count == count
            assert np.array_equal(out[:count], np.arange(count) + before)
            out[:] = -1
            statuses = comm.batch(
                [gc3.Send(x, other, 9), gc3.Recv(out, before, 9), gc3.Send(x, rank), gc3.Recv(x, rank)]
            )
            assert [s is None for s in statuses] == [True, False, True, False]
            assert np.array_equal(out[:count], np.arange(count) + before)
            said.append(repr(statuses[1]))
        return said

    for rank, said in enumerate(ranks.call(body, 3)):
        assert said[3] == f"Status(source={(rank - 1) % 3}, tag=9, count=5000)"


def test_any_elements_in_groups_and_beside_collectives() -> None:
    def body(comm: gc3.Communicator) -> list[Any]:
        other = 1 - comm.rank
        pixel = np.dtype([("at", np.int16, 2), ("color", np.uint8, 3)])
        x = np.zeros(10, pixel)
        x["color"] = comm.rank + 1
        out = np.zeros(12, pixel)
        status = comm.sendrecv(x, other, out, other)
        group = comm.group([1, 0], name="pair")
        inner = np.zeros(1)
        # The same ranks and tag in another group are other messages.
        receive = comm.irecv(inner, other, 0)
        found = np.zeros(1)
        group.sendrecv(np.array([10.0 + comm.rank]), 1 - group.rank, found, 1 - group.rank)
        assert not receive.test()
        total = np.zeros(1)

        def sums() -> None:
            for _ in range(200):
                total[:] = comm.all_reduce(np.ones(1))

        thread = threading.Thread(target=sums)
        thread.start()
        for i in range(200):
            got = np.zeros(3)
            group.sendrecv(np.full(3, float(i)), 1 - group.rank, got, tag=i)
            assert got.tolist() == [i] * 3
        thread.join()
        comm.send(np.array([20.0 + comm.rank]), other, 0)
        receive.wait()
        return [status.count, int(out["color"].sum()), float(found[0]), float(inner[0]), float(total[0])]

    assert ranks.call(body, 2) == [[10, 60, 11.0, 21.0, 2.0], [10, 30, 10.0, 20.0, 2.0]]


def test_a_function_is_called_at_the_end() -> None:
    def body(comm: gc3.Communicator) -> int:
        other = 1 - comm.rank
        ended = threading.Semaphore(0)
        outs = [np.zeros(100_000) for _ in range(5)]
        receives = [comm.irecv(out, other, i, done=ended.release) for i, out in enumerate(outs)]
        sends = [comm.isend(np.full(100_000, float(i)), other, i, done=ended.release) for i in range(5)]
        for _ in range(10):
            assert ended.acquire(timeout=60)
        assert all(t.test() for t in receives + sends)
        return int(sum(out[-1] for out in outs))

    assert ranks.call(body, 2) == [10, 10]


def test_mistakes_are_told_and_the_communicator_goes_on() -> None:
    def body(comm: gc3.Communicator) -> list[str]:
        other = 1 - comm.rank
        x = np.ones(4)
        bad: list[Any] = [
            lambda: comm.send(x, 2),
            lambda: comm.send(x, None),  # pyright: ignore[reportArgumentType]
            lambda: comm.recv(x, -1),
            lambda: comm.recv(x, "0"),  # pyright: ignore[reportArgumentType]
            lambda: comm.send(x, other, -1),
            lambda: comm.send(x, other, 2**31),
            lambda: comm.recv(x, other, timeout=0),
            lambda: comm.recv(np.ones(8)[::2]),
            lambda: comm.recv(np.broadcast_to(1.0, 4)),
            lambda: comm.recv([1.0]),
            lambda: comm.send(np.array([None]), other),
            lambda: comm.batch([comm.send]),  # pyright: ignore[reportArgumentType]
            lambda: comm.recv(x, other, timeout=0.05),
        ]
        said: list[str] = []
        for call in bad:
            try:
                call()
            except gc3.Gc3Error as problem:
                said.append(f"{problem.code} {problem.message}")
        comm.barrier()
        if comm.rank == 0:
            comm.send(np.ones(5), other, 6)
        else:
            try:
                comm.recv(x, other, 6)
            except gc3.UserError as problem:
                said.append(f"{problem.code} {problem.message}")
        assert comm.sendrecv(x, other, np.zeros(4)).count == 4
        return said

    first, second = ranks.call(body, 2)
    assert [line.split()[0] for line in first] == [
        *["GC3-L007"] * 4, *["GC3-L017"] * 2, "GC3-R002", *["GC3-R001"] * 3, "GC3-M002", "GC3-L017", "GC3-R003"
    ]  # fmt: skip
    assert "to 2; expected a whole number from 0 to 1" in first[0]
    assert "source '0'" in first[3]
    assert "out is not contiguous" in first[7]
    assert "out is read-only" in first[8]
    assert "among the operations of a batch; expected gc3.Send and gc3.Recv" in first[11]
    assert "rank 0 (process" in first[12]
    assert "for a message with any tag from rank 1 (process" in first[12]
    assert second[13].startswith("GC3-R026")
    assert "has sent 40 bytes with tag 6" in second[13]
    assert "receives at most 32" in second[13]


@pytest.mark.parametrize("count", [2, 1_000_000])  # a copy in shared memory; one that stays with the sender
@pytest.mark.parametrize(
    ("sent", "received", "names"),
    [
        (np.int32, np.float32, ("int32", "float32")),
        (np.int64, np.float32, ("int64", "float32")),
        ("S4", np.float32, ("a type that GC3 does not have", "float32")),
        ("M8[s]", "M8[ns]", ("a type that GC3 does not have", "another type that GC3 does not have")),
    ],
)
def test_a_message_of_another_type_is_an_error_of_both_ranks(
    count: int, sent: Any, received: Any, names: tuple[str, str]
) -> None:
    def body(comm: gc3.Communicator) -> list[str]:
        other = 1 - comm.rank
        x, out = np.ones(count, sent), np.zeros(2 * count, received)
        # As bytes, on purpose.
        if comm.rank == 0:
            comm.send(x.view(np.uint8), other)
        else:
            assert comm.recv(out.view(np.uint8), other).count == x.nbytes
            assert out.tobytes()[: x.nbytes] == x.tobytes()
        said: list[str] = []
        for _ in range(2):
            try:
                if comm.rank == 0:
                    comm.send(x, other, 5)
                    comm.recv(out, other, 6)
                else:
                    comm.recv(out, other, 5)
            except gc3.CommError as problem:
                said.append(f"{problem.code} {problem.message} {problem}")
        return said

    for said in ranks.call(body, 2):
        assert len(said) == 2
        for text in said:
            assert text.startswith("GC3-R010")
            assert "rank 0 (process" in text
            assert f"sends {names[0]}, and rank 1 (process" in text
            assert f"receives {names[1]}" in text
            assert "views of uint8 on both sides" in text


def test_a_lost_rank_and_two_sends_that_wait_for_each_other_are_named() -> None:
    results = ranks.start(ranks.program("message_to_nobody"), 2, arguments=["lost"]).finish()
    assert "rank 1 (process" in results[0][1]
    assert "has ended; rank 0 (process" in results[0][1]
    for text in ranks.run(ranks.program("message_to_nobody"), 2, arguments=["crossed"]):
        assert "GC3-R003" in text
        assert "group pair: rank" in text
        assert "rank 0 (process" in text
        assert "rank 1 (process" in text
        assert "each waits for the other to receive" in text


@pytest.mark.parametrize("way", ["call", "message", "last_call", "last_message"])
def test_what_done_may_do(way: str) -> None:
    assert ranks.run(ranks.program("within_done"), 2, arguments=[way]) == ["", ""]


def test_functions_of_python_within_a_call_that_use_the_communicator() -> None:
    ranks.run(ranks.program("called_again"), 1)


def test_an_array_is_kept_until_its_message_has_left() -> None:
    def body(comm: gc3.Communicator) -> float:
        other = 1 - comm.rank
        for i in range(20):
            comm.isend(np.full(200_000, float(i)), other)  # nobody keeps it but the communicator
        comm.barrier()
        total = 0.0
        for i in range(20):
            out = np.zeros(200_000)
            comm.recv(out, other)
            assert out[0] == out[-1] == i
            total += out[0]
        return total

    assert ranks.call(body, 2) == [190.0, 190.0]


@pytest.mark.slow
@pytest.mark.parametrize("single_copy", ["1", "0"])
@pytest.mark.parametrize("size", [1 << 26, pytest.param(1 << 30, marks=pytest.mark.nightly)])
def test_a_large_message(size: int, single_copy: str) -> None:
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if free < 4 * size:
        pytest.skip(f"less than {4 * size} bytes of memory are free")
    ranks.run(ranks.program("large_message"), 2, {"GC3_SINGLE_COPY": single_copy}, [size])
