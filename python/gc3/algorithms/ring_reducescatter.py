"""Ring ReduceScatter (002 figure 3b)."""

from __future__ import annotations

from gc3.algorithms._ring import reduce_scatter, rings
from gc3.lang import Cost, algorithm


@algorithm(
    "reducescatter",
    chunks=lambda rails: rails,
    in_place=True,
    section="002 figure 3b",
    good_for="large messages: only neighbours communicate, and all links carry the same load",
    cost=Cost(steps="R-1", sent="(R-1) * rails", of="R * rails"),
)
def ring_reducescatter(R: int, G: int = 1, rails: int = 1) -> None:
    """Each block goes once round the ring and is summed on the way; on nodes of G ranks, round `rails` rings."""
    for c, ring in enumerate(rings(R, G, rails)):
        reduce_scatter(ring, [rank * rails + c for rank in ring], ch=c)
