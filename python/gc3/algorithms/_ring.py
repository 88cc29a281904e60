"""Rings of ranks, and ReduceScatter and AllGather along a ring (002 figure 3b), phases of several algorithms."""

from __future__ import annotations

from collections.abc import Sequence

from gc3 import errors
from gc3.lang import chunk


def rings(R: int, G: int, rails: int) -> list[list[int]]:
    """Returns `rails` rings of R ranks on nodes of G, each as its ranks in order.

    A ring visits the nodes one after the other, and in each of them all ranks. Each ring enters nodes at another rank,
    evenly spread, and leaves them at the rank before that one. So all network cards carry the same load.

    Raises:
        gc3.UserError: R is not a multiple of G.

    >>> rings(4, 2, 2)
    [[0, 1, 2, 3], [1, 0, 3, 2]]
    """
    if G < 1 or R % G:
        raise errors.error("BadArgument", f"G={G} GPUs of each node do not divide R={R} ranks: expected a divisor of R")
    return [[n * G + (c * G // rails + g) % G for n in range(R // G) for g in range(G)] for c in range(rails)]


def chains(R: int, G: int, rails: int, root: int) -> list[list[int]]:
    """Returns the ranks of the same rings in order from `root` on.

    >>> chains(4, 2, 2, 3)
    [[3, 0, 1, 2], [3, 2, 1, 0]]
    """
    return [ring[ring.index(root) :] + ring[: ring.index(root)] for ring in rings(R, G, rails)]


def reduce_scatter(ranks: Sequence[int], places: Sequence[int], count: int = 1, *, ch: int | None = None) -> None:
    """Ring ReduceScatter among `ranks`: ranks[i] ends with the sum of the `count` chunks from places[i] on."""
    R = len(ranks)
    for r in range(R):
        c = chunk(ranks[(r + 1) % R], "in", places[r], count)
        for step in range(1, R):
            next = ranks[(step + r + 1) % R]
            c = chunk(next, "in", places[r], count).reduce(c, ch=ch)


def all_gather(
    ranks: Sequence[int], places: Sequence[int], count: int = 1, *, buffer: str = "in", ch: int | None = None
) -> None:
    """Ring AllGather among `ranks`: every rank gets the `count` chunks from places[i] on from ranks[i]."""
    R = len(ranks)
    for r in range(R):
        c = chunk(ranks[r], buffer, places[r], count)
        for step in range(1, R):
            next = ranks[(step + r) % R]
            c = c.copy(next, buffer, places[r], ch=ch)
