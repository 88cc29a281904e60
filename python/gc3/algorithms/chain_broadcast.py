"""Chain (pipelined) Broadcast."""

from __future__ import annotations

from gc3.lang import Cost, algorithm, chunk


@algorithm(
    "broadcast",
    chunks=lambda chunks: chunks,
    root=lambda root: root,
    in_place=True,
    section="NCCL's ring broadcast",
    good_for="large messages: every rank sends the data once, and chunks are pipelined down the chain",
    cost=Cost(steps="R-1", sent="min(R-1, 1) * chunks", of="chunks"),
)
def chain_broadcast(R: int, root: int = 0, chunks: int = 1) -> None:
    """Each chunk goes from the root to the next rank, and on to the one after."""
    for i in range(chunks):
        c = chunk(root, "out", i)
        for v in range(1, R):
            c = c.copy((root + v) % R, "out", i)
