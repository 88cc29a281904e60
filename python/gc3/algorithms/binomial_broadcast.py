"""Binomial tree Broadcast."""

from __future__ import annotations

from gc3.lang import Cost, algorithm, chunk
from gc3.lang.formula import pow2


@algorithm(
    "broadcast",
    chunks=lambda chunks: chunks,
    in_place=True,
    section="Thakur, Rabenseifner, Gropp 2005",
    good_for="small messages: a logarithm of steps",
    cost=Cost(steps="floor_log2(R)", sent="ceil_log2(R) * chunks", of="chunks"),
)
def binomial_broadcast(R: int, root: int = 0, chunks: int = 1) -> None:
    """A rank with the data sends it half the remaining distance on, then a quarter, ...; chunks are pipelined."""
    for i in range(chunks):
        distance = pow2(R)
        while distance:
            for v in range(0, R - distance, 2 * distance):  # ranks counted from the root
                chunk((root + v) % R, "out", i).copy((root + v + distance) % R, "out", i)
            distance //= 2
