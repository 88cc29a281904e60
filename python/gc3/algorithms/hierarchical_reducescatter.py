"""Hierarchical ReduceScatter: rings inside the nodes, then across them (the first half of 002 figure 3)."""

from __future__ import annotations

from gc3.algorithms._ring import reduce_scatter
from gc3.lang import Cost, algorithm


@algorithm(
    "reducescatter",
    in_place=True,
    section="002 section 2 (the first two phases of figure 3)",
    good_for="large messages on several nodes: only sums of whole nodes cross the network, on all GPUs' links",
    cost=Cost(steps="G-1 + N-1", sent="N*G-1", of="N*G"),
)
def hierarchical_reducescatter(N: int, G: int) -> None:
    """Sums inside each node so that GPU g has the blocks of all GPUs g, then sums these across nodes."""
    for n in range(N):
        for m in range(N):
            reduce_scatter([n * G + g for g in range(G)], range(m * G, (m + 1) * G))
    for g in range(G):
        reduce_scatter([n * G + g for n in range(N)], range(g, N * G, G))
