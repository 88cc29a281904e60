"""Flat Broadcast: the root sends to all other ranks."""

from __future__ import annotations

from gc3.lang import Cost, algorithm, chunk


@algorithm(
    "broadcast",
    in_place=True,
    section="textbook",
    good_for="small messages on a few ranks: one step, all of it from the root",
    cost=Cost(steps="min(R-1, 1)", sent="R-1", of="1"),
)
def flat_broadcast(R: int, root: int = 0) -> None:
    """Sends the root's data directly to every rank."""
    for v in range(1, R):
        chunk(root, "out", 0).copy((root + v) % R, "out", 0)
