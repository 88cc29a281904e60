"""ReduceScatter in the switches of one node or several, with rings between the nodes."""

from __future__ import annotations

from gc3.algorithms._in_switch import sums
from gc3.algorithms._ring import reduce_scatter
from gc3.lang import Cost, algorithm


@algorithm(
    "reducescatter",
    in_place=True,
    section="NCCL's NVLS (src/device/reduce_scatter.h), and rings between nodes",
    good_for="nodes whose switches add up: a GPU's port receives each sum once, however many GPUs send to it",
    cost=Cost(steps="min(G-1, 1) + N-1", sent="N*G-1", of="N*G"),
    in_switch=True,
)
def nvls_reducescatter(G: int, N: int = 1) -> None:
    """Each GPU g is sent its node's sums of the blocks of all GPUs g, which rings across the nodes then add up."""
    for g in range(G):
        for n in range(N):
            for distance in range(1, N + 1):
                sums(n, g, G, (n + distance) % N * G + g)
        reduce_scatter([n * G + g for n in range(N)], range(g, N * G, G), ch=2)
