"""Binomial tree AllReduce: Reduce to rank 0, then Broadcast."""

from __future__ import annotations

from gc3.lang import Cost, algorithm, chunk
from gc3.lang.formula import pow2


@algorithm(
    "allreduce",
    chunks=lambda chunks: chunks,
    in_place=True,
    section="Thakur, Rabenseifner, Gropp 2005",
    good_for="small messages on many ranks: few messages in all, 2(R-1) for each chunk",
    cost=Cost(steps="2*floor_log2(R)", sent="ceil_log2(R) * chunks", of="chunks"),
)
def binomial_tree_allreduce(R: int, chunks: int = 1) -> None:
    """Reduces along a binomial tree to rank 0 and sends the result down the same tree; chunks are pipelined."""
    for i in range(chunks):
        distance = 1
        while distance < R:
            for r in range(0, R - distance, 2 * distance):
                chunk(r, "in", i).reduce(chunk(r + distance, "in", i))
            distance *= 2
        distance = pow2(R)
        while distance:
            for r in range(0, R - distance, 2 * distance):
                chunk(r, "in", i).copy(r + distance, "in", i)
            distance //= 2
