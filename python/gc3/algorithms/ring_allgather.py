"""Ring AllGather (004 table I, 002 figure 3b)."""

from __future__ import annotations

from gc3.algorithms import _one_rank
from gc3.algorithms._ring import all_gather, rings
from gc3.lang import Cost, algorithm, me


def one_rank(R: int) -> None:
    """The same, on one ring."""
    (rank,) = me(R)
    _one_rank.all_gather(lambda d: (rank + d,), lambda d: rank + d, R, buffer="out", ch=0)


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
    if R > _one_rank.LOOPED and (G, rails) == (1, 1):
        one_rank(R)
        return
    for c, ring in enumerate(rings(R, G, rails)):
        all_gather(ring, [rank * rails + c for rank in ring], buffer="out", ch=c)
