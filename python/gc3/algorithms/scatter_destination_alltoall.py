"""Scatter-destination AllToAll (004 table I)."""

from __future__ import annotations

from gc3.lang import Cost, algorithm, chunk


@algorithm(
    "alltoall",
    section="004 table I",
    good_for="medium messages: one step, and no two ranks begin with the same destination",
    cost=Cost(steps="min(R-1, 1)", sent="R-1", of="R"),
)
def scatter_destination_alltoall(R: int) -> None:
    """Sends every block directly to its rank, the next rank first, then the one after, without waiting."""
    for step in range(R):
        for r in range(R):
            peer = (r + step) % R
            chunk(r, "in", peer).copy(peer, "out", r)
