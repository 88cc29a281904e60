"""Ring AllGather (004 table I, 002 figure 3b)."""

from __future__ import annotations

from gc3.algorithms._ring import all_gather, rings
from gc3.lang import Cost, algorithm


@algorithm(
    "allgather",
    chunks=lambda rails: rails,
    in_place=True,
    section="004 table I; 002 figure 3b",
    good_for="large messages: only neighbours communicate, and all links carry the same load",
    cost=Cost(steps="R-1", sent="(R-1) * rails", of="R * rails"),
)
def ring_allgather(R: int, G: int = 1, rails: int = 1) -> None:
    """Each block goes once round the ring; on nodes of G ranks, its parts round `rails` rings that share the NICs."""
    for c, ring in enumerate(rings(R, G, rails)):
        all_gather(ring, [rank * rails + c for rank in ring], buffer="out", ch=c)
