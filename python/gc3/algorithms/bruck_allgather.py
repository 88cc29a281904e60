"""Bruck's AllGather (004 table I, Bruck et al. 1997)."""

from __future__ import annotations

from gc3.algorithms._order import wrapped
from gc3.lang import Cost, algorithm, chunk


@algorithm(
    "allgather",
    in_place=True,
    section="004 table I; Bruck et al. 1997",
    good_for="small messages on any number of ranks: the fewest steps, one message each",
    cost=Cost(steps="floor_log2(R) + (2*R > 3*pow2(R))", sent="R-1", of="R"),
)
def bruck_allgather(R: int) -> None:
    """Doubles the blocks of every rank by receiving as many from the rank 1, 2, 4, ... places further.

    Blocks are collected in scratch, the rank's own first, and copied to their places at the end.
    """
    if R > 1:
        for r in range(R):
            chunk(r, "out", r).copy(r, "sc", 0)
    held = 1
    while held < R:
        count = min(held, R - held)
        for r in range(R):
            chunk(r, "sc", 0, count).copy((r - held) % R, "sc", held)
        held += count
    for r in range(R):
        for offset, index, count in wrapped(r + 1, R - 1, R):
            chunk(r, "sc", 1 + offset, count).copy(r, "out", index)
