"""Ring AllGather (004 table I, 002 figure 3b)."""

from __future__ import annotations

from gc3.algorithms._ring import all_gather
from gc3.lang import Cost, algorithm


@algorithm(
    "allgather",
    in_place=True,
    section="004 table I; 002 figure 3b",
    good_for="large messages: only neighbours communicate, and all links carry the same load",
    cost=Cost(steps="R-1", sent="R-1", of="R"),
)
def ring_allgather(R: int) -> None:
    """Each block goes once round the ring."""
    all_gather(range(R), 0, 1, buffer="out")
