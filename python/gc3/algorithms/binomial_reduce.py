"""Binomial tree Reduce."""

from __future__ import annotations

from gc3.lang import Cost, algorithm, chunk


@algorithm(
    "reduce",
    chunks=lambda chunks: chunks,
    in_place=True,
    section="Thakur, Rabenseifner, Gropp 2005",
    good_for="small messages: a logarithm of steps, and every rank sends once",
    cost=Cost(steps="floor_log2(R)", sent="min(R-1, 1) * chunks", of="chunks"),
)
def binomial_reduce(R: int, root: int = 0, chunks: int = 1) -> None:
    """Ranks sum with the rank 1 apart, then 2 apart, 4 apart, ...; chunks are pipelined.

    Only the root may overwrite its input; the other ranks sum in scratch.
    """
    for i in range(chunks):
        sums = [chunk((root + v) % R, "in" if v else "out", i) for v in range(R)]  # ranks counted from the root
        distance = 1
        while distance < R:
            for v in range(0, R - distance, 2 * distance):
                if v and distance == 1:
                    sums[v] = sums[v].copy((root + v) % R, "sc", i)
                sums[v] = sums[v].reduce(sums[v + distance])
            distance *= 2
