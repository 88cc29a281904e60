"""Direct AllToAll: every rank sends to all others, in rank order."""

from __future__ import annotations

from gc3.algorithms import _one_rank
from gc3.lang import Cost, algorithm, chunk, me


def one_rank(R: int) -> None:
    """The same."""
    (rank,) = me(R)
    for d in range(R):
        chunk(rank, "in", rank + d).copy(rank + d, "out", rank)


@algorithm(
    "alltoall",
    section="002 section 7.3 (the naive implementation)",
    good_for="one node whose GPUs are all connected: one step, no block is moved twice",
    cost=Cost(steps="min(R-1, 1)", sent="R-1", of="R"),
)
def direct_alltoall(R: int) -> None:
    """Sends every block directly to its rank, in rank order, like a loop of sends and receives."""
    if R > _one_rank.LOOPED:
        one_rank(R)
        return
    for r in range(R):
        for peer in range(R):
            chunk(r, "in", peer).copy(peer, "out", r)
