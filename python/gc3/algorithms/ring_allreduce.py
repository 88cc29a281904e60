"""Ring AllReduce (000 figure 8a, 002 section 7.1.1)."""

from __future__ import annotations

from typing import Any

from gc3.algorithms import _one_rank
from gc3.algorithms._ring import rings
from gc3.lang import Cost, algorithm, chunk, me


def one_rank(R: int) -> None:
    """The same, on one channel."""
    (rank,) = me(R)
    how: dict[str, Any] = {"ch": 0, "sendtb": 0, "recvtb": 0}
    _one_rank.reduce_scatter(lambda d: (rank + d,), lambda d: rank + 1 + d, R, **how)
    _one_rank.all_gather(lambda d: (rank + d,), lambda d: rank + 1 + d, R, **how)


@algorithm(
    "allreduce",
    chunks=lambda R, rails: R * rails,
    in_place=True,
    section="000 section 6.2.1, figure 8a; 002 section 7.1.1",
    good_for="large messages: every rank sends and receives the least data possible, 2(R-1)/R of it",
    cost=Cost(steps="2*(R-1)", sent="2*(R-1) * rails", of="R * rails"),
)
def ring_allreduce(R: int, channels: int = 1, G: int = 1, rails: int = 1) -> None:
    """Each chunk goes round the ring twice: once to be reduced, once to be distributed.

    On nodes of G ranks, each part of the data has one of `rails` rings that share the NICs.
    """
    if R > _one_rank.LOOPED and (channels, G, rails) == (1, 1, 1):
        one_rank(R)
        return
    for n, ring in enumerate(rings(R, G, rails)):
        for i in range(R):
            ch, at = n * channels + i % channels, n * R + i
            # Chunk i starts at rank i of the ring
            c = chunk(ring[i], "in", at)

            # First ring: compute fully reduced chunk
            for r in range(1, R):
                c = chunk(ring[(i + r) % R], "in", at).reduce(c, sendtb=ch, recvtb=ch, ch=ch)

            # Second ring: broadcast fully reduced chunk
            for r in range(R - 1, 2 * R - 2):
                c = c.copy(ring[(i + r + 1) % R], "in", at, sendtb=ch, recvtb=ch, ch=ch)
