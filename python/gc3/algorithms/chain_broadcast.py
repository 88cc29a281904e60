"""Chain (pipelined) Broadcast."""

from __future__ import annotations

from gc3.algorithms._ring import chains
from gc3.lang import Cost, algorithm, chunk


@algorithm(
    "broadcast",
    chunks=lambda chunks, rails: chunks * rails,
    in_place=True,
    section="NCCL's ring broadcast",
    good_for="large messages: every rank sends the data once, and chunks are pipelined down the chain",
    cost=Cost(steps="R-1", sent="min(R-1, 1) * chunks * rails", of="chunks * rails"),
)
def chain_broadcast(R: int, root: int = 0, chunks: int = 1, G: int = 1, rails: int = 1) -> None:
    """Each chunk goes from the root to the next rank, and on to the one after.

    On nodes of G ranks, each part of the data has one of `rails` chains that share the NICs.
    """
    for n, chain in enumerate(chains(R, G, rails, root)):
        for i in range(n * chunks, (n + 1) * chunks):
            c = chunk(root, "out", i)
            for rank in chain[1:]:
                c = c.copy(rank, "out", i, ch=n)
