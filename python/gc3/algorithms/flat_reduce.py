"""Flat Reduce: every rank sends to the root."""

from __future__ import annotations

from gc3.lang import Cost, algorithm, chunk


@algorithm(
    "reduce",
    in_place=True,
    section="textbook",
    good_for="small messages on a few ranks: one step, all sums at the root",
    cost=Cost(steps="min(R-1, 1)", sent="min(R-1, 1)", of="1"),
)
def flat_reduce(R: int, root: int = 0) -> None:
    """The root sums the data that all ranks send."""
    total = chunk(root, "out", 0)
    for v in range(1, R):
        total = total.reduce(chunk((root + v) % R, "in", 0))
