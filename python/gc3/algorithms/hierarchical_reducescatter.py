"""Hierarchical ReduceScatter: rings inside the nodes, then across them (the first half of 002 figure 3)."""

from __future__ import annotations

from gc3.algorithms import _one_rank
from gc3.algorithms._ring import reduce_scatter
from gc3.lang import Cost, algorithm, me


def one_rank(N: int, G: int) -> None:
    """The same."""
    node, gpu = me(N, G)
    for a in range(N):
        _one_rank.reduce_scatter(lambda d: (node, gpu + d), lambda d, a=a: (node + a) * G + (gpu + d), G)
    _one_rank.reduce_scatter(lambda d: (node + d, gpu), lambda d: (node + d) * G + gpu, N)


@algorithm(
    "reducescatter",
    in_place=True,
    section="002 section 2 (the first two phases of figure 3)",
    good_for="large messages on several nodes: only sums of whole nodes cross the network, on all GPUs' links",
    cost=Cost(steps="G-1 + N-1", sent="N*G-1", of="N*G"),
)
def hierarchical_reducescatter(N: int, G: int) -> None:
    """Sums inside each node so that GPU g has the blocks of all GPUs g, then sums these across nodes."""
    if N * G > _one_rank.LOOPED:
        one_rank(N, G)
        return
    for n in range(N):
        for m in range(N):
            reduce_scatter([n * G + g for g in range(G)], range(m * G, (m + 1) * G))
    for g in range(G):
        reduce_scatter([n * G + g for n in range(N)], range(g, N * G, G))
