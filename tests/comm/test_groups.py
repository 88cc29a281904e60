"""Groups of some ranks, which only these ranks make."""

from __future__ import annotations

import os
import re
import time
from concurrent import futures
from typing import Any

import numpy as np

import gc3
import ranks


def test_overlapping_groups_have_their_own_order_of_calls() -> None:
    def body(comm: gc3.Communicator) -> list[float]:
        rank, size = comm.rank, comm.size
        row = comm.group([rank - rank % 2, rank - rank % 2 + 1], name="row")
        column = comm.group(range(rank % 2, size, 2), name="column")
        everyone = comm.group(range(size - 1, -1, -1))
        assert (everyone.rank, row.size, column.size) == (size - 1 - rank, 2, size // 2)
        x = np.full(1000, float(rank))
        first, second = (row, column) if rank == 0 else (column, row)
        under_way = comm.all_reduce_async(x)
        a, b = first.all_reduce(x)[0], second.all_reduce(x)[0]
        inner = row.group([1, 0])
        c = inner.broadcast(np.array([float(rank)]), root=0)[0]
        return [float(v) for v in ((a, b, c) if rank == 0 else (b, a, c))] + [float(under_way.wait()[0])]

    found = ranks.call(body, 4)
    assert found == [[1, 2, 1, 6], [1, 4, 1, 6], [5, 2, 3, 6], [5, 4, 3, 6]]


def test_groups_with_names_are_made_and_used_in_any_order_by_any_thread() -> None:
    def body(comm: gc3.Communicator) -> list[list[float]]:
        values = {"tp": 1.0, "dp": 100.0}
        order = list(values) if comm.rank == 0 else list(reversed(values))
        made = {name: comm.group([0, 1], name=name) for name in order}
        with futures.ThreadPoolExecutor(2) as threads:
            by_threads = dict(zip(order, threads.map(lambda name: comm.group([1, 0], name=name), order), strict=True))
        found: list[list[float]] = []
        for groups in (made, by_threads):
            under_way = {name: groups[name].all_reduce_async(np.array([values[name]])) for name in reversed(order)}
            found.append([float(under_way[name].wait()[0]) for name in values])
        return found

    assert ranks.call(body, 2) == [[[2, 200], [2, 200]]] * 2


def test_groups_without_a_name_that_ranks_make_in_another_order_are_an_error_on_all_ranks() -> None:
    def body(comm: gc3.Communicator) -> list[str]:
        makes = [
            lambda: comm.group([0, 1]),
            lambda: comm.group([0, 1]),
        ]
        said: list[str] = []
        for call in (*(makes if comm.rank == 0 else reversed(makes)), comm.barrier):
            try:
                call()
            except gc3.CommError as problem:
                said.append(str(problem))
        return said

    for texts in ranks.call(body, 2):
        assert len(texts) == 3
        for said in texts:
            assert said.startswith("GC3-R010 the ranks make different calls: some make a group")
            for rank in (0, 1):
                assert re.search(rf"rank {rank}: group of ranks 0, 1, made at test_groups.py:\d", said), said


def test_ranks_that_call_something_else_than_a_group_without_a_name_learn_it_at_once() -> None:
    def body(comm: gc3.Communicator) -> str:
        try:
            if comm.rank == 0:
                comm.group([0, 1])
            else:
                comm.all_reduce(np.ones(3))
        except gc3.CommError as problem:
            return str(problem)
        return ""

    for said in ranks.call(body, 3):
        assert said.startswith("GC3-R010 the ranks make different calls: some make a group")
        assert "rank 0: group of ranks 0, 1" in said
        assert "rank 1: call 2 of the communicator, allreduce of 3 float64 (sum)" in said


def test_a_thousand_groups_are_made_and_freed_without_other_ranks() -> None:
    def body(comm: gc3.Communicator) -> tuple[float, int, int]:
        def open_files() -> int:
            return len(os.listdir("/proc/self/fd"))

        if comm.rank == 2:
            return 0.0, 0, 0
        comm.group([0, 1]).close()
        before, took = open_files(), []
        for _ in range(1000):
            start = time.perf_counter()
            group = comm.group([0, 1])
            took.append(time.perf_counter() - start)
            group.close()
        return float(np.median(took)), before, open_files()

    for median, before, after in ranks.call(body, 3)[:2]:
        assert before == after
        assert median < 1  # far more than it takes


def test_an_error_of_a_group_has_its_name_and_does_not_affect_others() -> None:
    def body(comm: gc3.Communicator) -> tuple[str, float]:
        pair = comm.group([0, 1], name="pair") if comm.rank < 2 else None
        said = ""
        if pair is not None:
            try:
                pair.all_reduce(np.ones(3 + pair.rank))
            except gc3.CommError as problem:
                said = problem.message
        return said, float(comm.all_reduce(np.ones(1))[0])

    found = ranks.call(body, 3)
    assert [total for _, total in found] == [3.0] * 3
    for said, _ in found[:2]:
        assert said.startswith("the ranks make different calls: group pair: call 2 of the communicator")


def test_a_rank_outside_the_list_of_a_group_disturbs_nobody() -> None:
    def body(comm: gc3.Communicator) -> tuple[str, float]:
        said = ""
        try:
            comm.group([0, 1], name="pair").close()
        except gc3.UserError as problem:
            said = problem.message
        return said, float(comm.all_reduce(np.ones(1))[0])

    found = ranks.call(body, 3)
    assert [total for _, total in found] == [3.0] * 3
    assert [bool(said) for said, _ in found] == [False, False, True]


def test_invalid_groups_are_refused() -> None:
    lists: list[Any] = [[], [0, 0], [1], ["x"]]

    def body(comm: gc3.Communicator) -> list[str]:
        said: list[str] = []
        for members in lists:
            try:
                comm.group(members)
            except gc3.UserError as problem:
                said.append(str(problem).splitlines()[0])
        return said

    assert ranks.call(body, 1) == [
        [
            "GC3-L017 bad argument: rank 0 is not in the list of a group (); only the ranks in the list make it",
            "GC3-L017 bad argument: rank 0 is twice in the list of a group",
            "GC3-L007 rank out of range: rank=1; expected a whole number from 0 to 0",
            "GC3-L007 rank out of range: rank='x'; expected a whole number from 0 to 0",
        ]
    ]


def test_a_single_call_of_any_kind_has_a_time_out_of_its_own() -> None:
    ranks.run(ranks.program("call_timeouts"), 2)
