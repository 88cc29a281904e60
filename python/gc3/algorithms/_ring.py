"""Ring ReduceScatter and AllGather among some ranks (002 figure 3b), phases of several algorithms."""

from __future__ import annotations

from collections.abc import Sequence

from gc3.lang import chunk


def reduce_scatter(
    ranks: Sequence[int], offset: int, count: int, *, stride: int | None = None, ch: int | None = None
) -> None:
    """Ring ReduceScatter among `ranks`: ranks[i] ends with the sum of the i-th group of `count` chunks.

    Groups begin `stride` chunks apart in the input; by default `count`.
    """
    R = len(ranks)
    for r in range(R):
        index = offset + r * (count if stride is None else stride)
        c = chunk(ranks[(r + 1) % R], "in", index, count)
        for step in range(1, R):
            next = ranks[(step + r + 1) % R]
            c = chunk(next, "in", index, count).reduce(c, ch=ch)


def all_gather(ranks: Sequence[int], offset: int, count: int, *, buffer: str = "in", ch: int | None = None) -> None:
    """Ring AllGather among `ranks`: every rank gets the i-th group of `count` chunks from ranks[i]."""
    R = len(ranks)
    for r in range(R):
        index = offset + r * count
        c = chunk(ranks[r], buffer, index, count)
        for step in range(1, R):
            next = ranks[(step + r) % R]
            c = c.copy(next, buffer, index, ch=ch)
