"""Flat Scatter: the root sends to all other ranks."""

from __future__ import annotations

from gc3.lang import Cost, algorithm, chunk


@algorithm(
    "scatter",
    in_place=None,
    section="textbook",
    good_for="large messages: no block is moved twice",
    cost=Cost(steps="min(R-1, 1)", sent="R-1", of="R"),
)
def flat_scatter(R: int, root: int = 0) -> None:
    """The root sends every rank its block."""
    for v in range(R):
        rank = (root + v) % R
        chunk(root, "in", rank).copy(rank, "out", 0)
