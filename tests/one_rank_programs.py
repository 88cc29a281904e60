"""The library's programs from the view of one rank, for small numbers of ranks, where the library writes loops."""

from __future__ import annotations

import inspect
from dataclasses import replace
from importlib import import_module
from typing import Any

from gc3 import algorithms
from gc3.algorithms import _one_rank
from gc3.lang import Algorithm, algorithm, chunk, me


def _form(name: str) -> Algorithm:
    one_rank = import_module(f"gc3.algorithms.{name}").one_rank
    wanted = inspect.signature(one_rank).parameters

    def function(**given: int) -> None:
        one_rank(**{name: given[name] for name in wanted})

    return replace(algorithms.load(name), function=function)


ring_allreduce = _form("ring_allreduce")
ring_allgather = _form("ring_allgather")
ring_reducescatter = _form("ring_reducescatter")
hierarchical_allreduce = _form("hierarchical_allreduce")
hierarchical_reducescatter = _form("hierarchical_reducescatter")
rail_allgather = _form("rail_allgather")
two_level_ring_allgather = _form("two_level_ring_allgather")
two_step_alltoall = _form("two_step_alltoall")
direct_alltoall = _form("direct_alltoall")
allpairs_allreduce = _form("allpairs_allreduce")
recursive_halving_doubling_allreduce = _form("recursive_halving_doubling_allreduce")

FORMS: list[tuple[Algorithm, dict[str, Any]]] = [
    (ring_allreduce, {"R": 5}),
    (ring_allreduce, {"R": 2}),
    (ring_allgather, {"R": 4}),
    (ring_reducescatter, {"R": 6}),
    (hierarchical_allreduce, {"N": 4, "G": 2}),
    (hierarchical_allreduce, {"N": 3, "G": 3}),
    (hierarchical_allreduce, {"N": 1, "G": 4}),
    (hierarchical_allreduce, {"N": 4, "G": 1}),
    (hierarchical_allreduce, {"N": 3, "G": 2, "parallel": 3}),
    (hierarchical_reducescatter, {"N": 3, "G": 2}),
    (rail_allgather, {"N": 3, "G": 4}),
    (rail_allgather, {"N": 4, "G": 1}),
    (two_level_ring_allgather, {"N": 3, "G": 2}),
    (two_level_ring_allgather, {"N": 1, "G": 3}),
    (two_step_alltoall, {"N": 3, "G": 2}),
    (two_step_alltoall, {"N": 2, "G": 4}),
    (direct_alltoall, {"R": 5}),
    (allpairs_allreduce, {"R": 4}),
    (allpairs_allreduce, {"R": 3, "chunks": 2}),
    (recursive_halving_doubling_allreduce, {"R": 8}),
]


@algorithm("allreduce", chunks=lambda R, chunks: R * chunks, in_place=True)
def many_rings(R: int, chunks: int) -> None:
    """Ring AllReduce of many small chunks: as many steps on a few ranks as others have on many."""
    (rank,) = me(R)
    for k in range(chunks):
        _one_rank.reduce_scatter(lambda d: (rank + d,), lambda d, k=k: (rank + 1 + d) * chunks + k, R, ch=0)
        _one_rank.all_gather(lambda d: (rank + d,), lambda d, k=k: (rank + 1 + d) * chunks + k, R, ch=0)


@algorithm("allgather", chunks=lambda chunks: chunks, in_place=True)
def many_sends(R: int, chunks: int) -> None:
    """Direct AllGather of many small chunks."""
    (rank,) = me(R)
    for k in range(chunks):
        c = chunk(rank, "out", rank * chunks + k)
        for d in range(1, R):
            c.copy(rank + d)
