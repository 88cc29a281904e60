"""Chain (pipelined) Reduce."""

from __future__ import annotations

from gc3.lang import Cost, algorithm, chunk


@algorithm(
    "reduce",
    chunks=lambda chunks: chunks,
    root=lambda root: root,
    in_place=True,
    section="NCCL's ring reduce",
    good_for="large messages: every rank sends the data once, and chunks are pipelined up the chain",
    cost=Cost(steps="R-1", sent="min(R-1, 1) * chunks", of="chunks"),
)
def chain_reduce(R: int, root: int = 0, chunks: int = 1) -> None:
    """Each chunk starts at the rank after the root, visits every rank in order and is summed on its way to the root."""
    for i in range(chunks):
        total = chunk((root + R - 1) % R, "in", i)
        for v in range(R - 2, 0, -1):
            rank = (root + v) % R
            total = chunk(rank, "in", i).copy(rank, "sc", i).reduce(total)
        if R > 1:
            chunk(root, "out", i).reduce(total)
