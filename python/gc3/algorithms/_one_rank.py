"""Phases of algorithms from the view of one rank.

An algorithm whose ranks do the same has a function `one_rank`, which writes it by `me`. From more than `LOOPED` ranks
on the algorithm is this function, because loops over all ranks take too long there. Below, they write the operations
rank by rank, which is the order that the compiler follows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from gc3.lang import chunk

LOOPED = 1024

# A rank of a ring, so many places from the one that the program is written for; and the chunk that is named so.
Rank: TypeAlias = Callable[[int], tuple[Any, ...]]
Place: TypeAlias = Callable[[int], Any]


def reduce_scatter(at: Rank, place: Place, R: int, count: int = 1, **how: Any) -> None:
    """Ring ReduceScatter of R ranks: at(d) ends with the sum of the `count` chunks from place(d) on."""
    for s in range(1, R):
        mine = chunk(at(0), "in", place(-s), count)
        chunk(at(1), "in", place(-s), count).reduce(mine, **how)


def all_gather(at: Rank, place: Place, R: int, count: int = 1, *, buffer: str = "in", **how: Any) -> None:
    """Ring AllGather of R ranks: every rank gets the `count` chunks from place(d) on from at(d)."""
    for s in range(R - 1):
        chunk(at(0), buffer, place(-s), count).copy(at(1), **how)
