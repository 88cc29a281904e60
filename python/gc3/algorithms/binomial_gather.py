"""Binomial tree Gather."""

from __future__ import annotations

from gc3.algorithms._order import wrapped
from gc3.lang import Cost, algorithm, chunk


@algorithm(
    "gather",
    in_place=True,
    section="Thakur, Rabenseifner, Gropp 2005",
    good_for="small messages on many ranks: the root receives a logarithm of messages",
    cost=Cost(steps="floor_log2(R)", sent="subtree(R)", of="R"),
)
def binomial_gather(R: int, root: int = 0) -> None:
    """Every rank collects the blocks of its subtree in scratch and sends them up in one message."""
    for v in range(1, R):
        rank = (root + v) % R
        chunk(rank, "in", 0).copy(rank, "sc", 0)
    distance = 1
    while distance < R:
        for v in range(0, R - distance, 2 * distance):  # ranks counted from the root
            below = (root + v + distance) % R
            count = min(distance, R - v - distance)
            if v:
                chunk(below, "sc", 0, count).copy((root + v) % R, "sc", distance)
            else:
                for offset, index, part in wrapped(below, count, R):
                    chunk(below, "sc", offset, part).copy(root, "out", index)
        distance *= 2
