"""Flat Gather: every rank sends to the root."""

from __future__ import annotations

from gc3.lang import Cost, algorithm, chunk


@algorithm(
    "gather",
    in_place=True,
    section="textbook",
    good_for="large messages: no block is moved twice",
    cost=Cost(steps="min(R-1, 1)", sent="min(R-1, 1)", of="R"),
)
def flat_gather(R: int, root: int = 0) -> None:
    """Every rank sends its block directly to the root."""
    for v in range(1, R):
        rank = (root + v) % R
        chunk(rank, "in", 0).copy(root, "out", rank)
