"""Pairwise exchange AllToAll (004 table I)."""

from __future__ import annotations

from gc3.algorithms._order import partner
from gc3.lang import Cost, algorithm, chunk


@algorithm(
    "alltoall",
    section="004 table I",
    good_for="medium and large messages on networks that suffer when several ranks send to one",
    cost=Cost(steps="R-1", sent="R-1", of="R"),
)
def pairwise_alltoall(R: int) -> None:
    """Exchanges with one partner after the other: a step begins when the one before is complete.

    Two chunks of scratch enforce the order, one to send from and one to receive in. They swap roles after every step:
    the next block to send is copied to where the last block was received, once that has moved to the output.
    """
    for r in range(R):
        chunk(r, "in", r).copy(r, "out", r)
    for step in range(1, R):
        going, coming = step % 2, (step + 1) % 2
        for r in range(R):
            chunk(r, "in", partner(r, step, R)).copy(r, "sc", going)
        for r in range(R):
            peer = partner(r, step, R)
            chunk(r, "sc", going).copy(peer, "sc", coming).copy(peer, "out", r)
