"""Direct ReduceScatter: the first half of All Pairs AllReduce (002 section 7.1.2)."""

from __future__ import annotations

from gc3.lang import Cost, algorithm, chunk


@algorithm(
    "reducescatter",
    in_place=True,
    section="002 section 7.1.2 (its first step)",
    good_for="small messages where all ranks are connected: one step whatever R is",
    cost=Cost(steps="min(R-1, 1)", sent="R-1", of="R"),
)
def direct_reducescatter(R: int) -> None:
    """Every rank sends each other rank its block, and sums the blocks it receives, starting with the next rank's."""
    for r in range(R):
        c = chunk(r, "in", r)
        for step in range(1, R):
            c = c.reduce(chunk((r + step) % R, "in", r))
