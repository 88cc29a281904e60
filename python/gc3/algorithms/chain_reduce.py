"""Chain (pipelined) Reduce."""

from __future__ import annotations

from gc3.algorithms._ring import chains
from gc3.lang import Cost, algorithm, chunk


@algorithm(
    "reduce",
    chunks=lambda chunks, rails: chunks * rails,
    in_place=True,
    section="NCCL's ring reduce",
    good_for="large messages: every rank sends the data once, and chunks are pipelined up the chain",
    cost=Cost(steps="R-1", sent="min(R-1, 1) * chunks * rails", of="chunks * rails"),
)
def chain_reduce(R: int, root: int = 0, chunks: int = 1, G: int = 1, rails: int = 1) -> None:
    """Each chunk starts at the rank after the root, visits every rank in order and is summed on its way to the root.

    On nodes of G ranks, each part of the data has one of `rails` chains that share the NICs.
    """
    for n, chain in enumerate(chains(R, G, rails, root)):
        for i in range(n * chunks, (n + 1) * chunks):
            total = chunk(chain[-1], "in", i)
            for rank in reversed(chain[1:-1]):
                total = chunk(rank, "in", i).copy(rank, "sc", i).reduce(total, ch=n)
            if R > 1:
                chunk(root, "out", i).reduce(total, ch=n)
