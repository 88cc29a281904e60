"""Scatter + AllGather Broadcast (van de Geijn's algorithm, pipelined)."""

from __future__ import annotations

from gc3.lang import Cost, algorithm, chunk


@algorithm(
    "broadcast",
    chunks=lambda R: R,
    in_place=True,
    section="Barnett et al. 1994; Thakur, Rabenseifner, Gropp 2005",
    good_for="large messages where ranks have several links: the root sends the data once, and all ranks forward it",
    cost=Cost(steps="R-1", sent="R if R > 1 else 0", of="R"),
)
def scatter_allgather_broadcast(R: int, root: int = 0) -> None:
    """Sends one chunk to every rank, which then goes round the ring of all ranks but the root.

    The root keeps chunk 0 and sends it along the ring itself.
    """
    for v in range(R):
        c = chunk(root, "out", v)
        ring = [1 + (v - 1 + step) % (R - 1) for step in range(R - 1)] if v else list(range(1, R))
        for u in ring:
            c = c.copy((root + u) % R, "out", v)
