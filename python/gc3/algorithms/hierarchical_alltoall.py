"""Hierarchical AllToAll through a node leader, with overlap (004 section III-C, algorithm 3)."""

from __future__ import annotations

from gc3.algorithms._order import partner
from gc3.lang import Cost, algorithm, chunk


@algorithm(
    "alltoall",
    scratch=("gathered", "received"),
    section="004 section III-C, algorithm 3",
    good_for="nodes where one GPU at a time should use the network: only leaders communicate across nodes",
    cost=Cost(
        steps="(3 if N > 1 else 1) if G > 1 else min(N-1, 1)",
        sent="G-1 + (N-1)*G*(2*G-1) if G > 1 else N-1",
        of="N*G",
    ),
)
def hierarchical_alltoall(N: int, G: int) -> None:
    """Leaders collect the blocks for one node, swap them with that node's leader, and distribute what they receive.

    This is pipelined by GPUs: while the blocks of one GPU cross the network, the leader already has those of the next,
    and distributes those of the one before. Nodes are paired by exclusive or if N is a power of two, else by shifting.
    """
    for n in range(N):
        for g in range(G):
            for i in range(G):
                chunk((n, g), "in", (n, i)).copy((n, i), "out", (n, g))
    for step in range(1, N):
        for g in range(G):
            for n in range(N):
                m = partner(n, step, N)
                c = chunk((n, g), "in", (m, 0), G)
                if g != 0:
                    c = c.copy((n, 0), "gathered", (m * G + g) * G)
                c.copy((m, 0), "received", (n * G + g) * G)
                for i in range(G):
                    chunk((m, 0), "received", (n * G + g) * G + i).copy((m, i), "out", (n, g))
