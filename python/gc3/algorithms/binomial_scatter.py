"""Binomial tree Scatter."""

from __future__ import annotations

from gc3.algorithms._order import wrapped
from gc3.lang import Cost, algorithm, chunk
from gc3.lang.formula import pow2


@algorithm(
    "scatter",
    in_place=None,
    section="Thakur, Rabenseifner, Gropp 2005",
    good_for="small messages on many ranks: the root sends a logarithm of messages",
    cost=Cost(steps="floor_log2(R)", sent="R-1", of="R"),
)
def binomial_scatter(R: int, root: int = 0) -> None:
    """Every rank receives the blocks of its subtree in one message, in scratch, and sends on all but its own."""
    chunk(root, "in", root).copy(root, "out", 0)
    distance = pow2(R)
    while distance:
        for v in range(0, R - distance, 2 * distance):  # ranks counted from the root
            below = (root + v + distance) % R
            count = min(distance, R - v - distance)
            if v:
                chunk((root + v) % R, "sc", distance, count).copy(below, "sc", 0)
            else:
                for offset, index, part in wrapped(below, count, R):
                    chunk(root, "in", index, part).copy(below, "sc", offset)
        distance //= 2
    for v in range(1, R):
        rank = (root + v) % R
        chunk(rank, "sc", 0).copy(rank, "out", 0)
