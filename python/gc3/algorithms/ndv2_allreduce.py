"""Hierarchical AllReduce for nodes that share one network card (000 section 6.3)."""

from __future__ import annotations

from gc3.algorithms._ring import all_gather, reduce_scatter
from gc3.lang import Cost, algorithm, chunk


@algorithm(
    "allreduce",
    chunks=lambda G: G,
    in_place=True,
    section="000 section 6.3",
    good_for="two nodes with a slow network: each chunk crosses it once in each direction, in a single step",
    cost=Cost(steps="2*(G-1) + min(N-1, 1)", sent="2*(G-1) + N-1", of="G"),
)
def ndv2_allreduce(N: int = 2, G: int = 8) -> None:
    """Sums along a ring inside each node, swaps the sums across nodes, and distributes the result along the ring."""
    for n in range(N):
        reduce_scatter([n * G + g for g in range(G)], range(G))
    for g in range(G):
        for n in range(N):
            for m in range(N):
                if m != n:
                    chunk((n, g), "in", g).copy((m, g), "sc", n)
        for n in range(N):
            c = chunk((n, g), "in", g)
            for m in range(N):
                if m != n:
                    c = c.reduce(chunk((n, g), "sc", m))
    for n in range(N):
        all_gather([n * G + g for g in range(G)], range(G))
