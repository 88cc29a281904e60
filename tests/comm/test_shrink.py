"""What is left of a job goes on after ranks were killed."""

from __future__ import annotations

import re
import signal
from typing import Any

import numpy as np
import pytest

import gc3
import ranks


@pytest.mark.parametrize(
    "lost", [(3,), (4, 0), *(pytest.param(lost, marks=pytest.mark.python_only) for lost in ((0,), (1, 2, 3)))], ids=str
)
def test_the_ranks_that_are_left_go_on(lost: tuple[int, ...]) -> None:
    found = ranks.start(ranks.program("survive"), 5, arguments=lost).finish()
    for rank, (status, text) in enumerate(found):
        if rank in lost:
            assert status == -signal.SIGKILL, text
            continue
        assert status == 0, text
        assert "done at" in text
        assert f"rank {lost[0]} " in text


def test_without_a_loss_all_ranks_are_left() -> None:
    def body(comm: gc3.Communicator) -> tuple[int, float, float]:
        if comm.rank == 2:
            comm.close()
            return 0, 0.0, 0.0
        while True:  # rank 2 has left as soon as the others notice
            smaller = comm.shrink()
            if smaller.size == 2:
                break
            smaller.close()
        # The first one has been given up, because a rank is missing.
        with pytest.raises(gc3.CommError):
            comm.all_reduce(np.ones(1))
        twice = smaller.shrink()
        return smaller.size, float(smaller.all_reduce(np.ones(1))[0]), float(twice.all_reduce(np.ones(1))[0])

    assert ranks.call(body, 3)[:2] == [(2, 2.0, 2.0)] * 2


def test_a_rank_that_does_not_shrink_is_named() -> None:
    def body(comm: gc3.Communicator) -> str:
        said = ""
        if comm.rank == 0:
            with pytest.raises(gc3.CommError, match="GC3-R") as caught:
                comm.shrink(timeout=0.3)
            said = caught.value.message
            comm.send(np.ones(1), 1)
        else:
            comm.recv(np.ones(1), 0)  # no call that the other one would have to make
        return said

    assert "has not made the group" in ranks.call(body, 2)[0]


def test_a_call_in_place_of_shrink_is_told_at_once_and_all_may_shrink_then() -> None:
    def body(comm: gc3.Communicator) -> tuple[str, float]:
        said = ""
        if comm.rank == 0:
            with pytest.raises(gc3.CommError, match="GC3-R010") as caught:
                comm.all_reduce(np.ones(1))
            said = str(caught.value)
        return said, float(comm.shrink().all_reduce(np.ones(1))[0])

    (said, total), *others = ranks.call(body, 3)
    assert "rank 0: call 2 of the communicator, allreduce of 1 float64" in said
    assert re.search(r"rank (1|2|1, 2): group of ranks 0, 1, 2, made at shrink\(\)", said), said
    assert [total, *(t for _, t in others)] == [3.0] * 3


@pytest.mark.parametrize(
    ("wrong", "why"), [({"timeout": -1.0}, "timeout=-1.0"), ({"limit": 3}, "shrink(): got an unexpected keyword")]
)
def test_wrong_arguments_of_shrink_are_told_to_the_others_at_once(wrong: Any, why: str) -> None:
    def body(comm: gc3.Communicator) -> tuple[str, float]:
        with pytest.raises(gc3.Gc3Error) as caught:
            comm.shrink(**(wrong if comm.rank == 1 else {}))
        return str(caught.value), float(comm.shrink().all_reduce(np.ones(1))[0])

    found = ranks.call(body, 3)
    assert [total for _, total in found] == [3.0] * 3
    for rank, (said, _) in enumerate(found):
        if rank != 1:
            assert said.startswith("GC3-R010 the ranks make different calls: some shrink the communicator"), said
            assert "rank 1: a call with wrong arguments: " in said
        assert why in said
