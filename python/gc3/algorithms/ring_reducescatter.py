"""Ring ReduceScatter (002 figure 3b)."""

from __future__ import annotations

from gc3.algorithms._ring import reduce_scatter
from gc3.lang import Cost, algorithm


@algorithm(
    "reducescatter",
    in_place=True,
    section="002 figure 3b",
    good_for="large messages: only neighbours communicate, and all links carry the same load",
    cost=Cost(steps="R-1", sent="R-1", of="R"),
)
def ring_reducescatter(R: int) -> None:
    """Each block goes once round the ring, is summed on the way, and ends at its rank."""
    reduce_scatter(range(R), 0, 1)
