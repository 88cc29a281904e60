"""Hierarchical AllGather through a node leader, with overlap (004 section III-A, algorithm 1)."""

from __future__ import annotations

from gc3.algorithms._order import is_pow2
from gc3.lang import Cost, algorithm, chunk


@algorithm(
    "allgather",
    in_place=True,
    section="004 section III-A, algorithm 1",
    good_for="nodes where one GPU should use the network: a logarithm of steps between leaders, the rest overlaps",
    cost=Cost(steps="floor_log2(N) + min((G-1)*N, 2)", sent="(N-1)*G + (G-1)*(N*G-1)", of="N*G"),
)
def hierarchical_allgather(N: int, G: int) -> None:
    """Leaders collect their node's blocks, swap with the leaders at distance 1, 2, 4, ..., and send all to their node.

    This is pipelined by blocks: while one block crosses the network, the leader collects the next and distributes the
    one before. If N is not a power of two, leaders send to the one 1, 2, 4, ... nodes back (Bruck's order) instead of
    swapping.
    """

    def hand_out(n: int, source: int) -> None:
        for g in range(1, G):
            if source != n * G + g:  # that GPU has its own block
                chunk((n, 0), "out", source).copy((n, g), "out", source)

    for n in range(N):
        for g in range(G):
            chunk((n, g), "out", (n, g)).copy((n, 0), "out", (n, g))
            hand_out(n, n * G + g)
    held = 1
    while held < N:
        for j in range(min(held, N - held) * G):
            for n in range(N):
                first = n // held * held if is_pow2(N) else n
                source = (first * G + j) % (N * G)
                m = n ^ held if is_pow2(N) else (n - held) % N
                chunk((n, 0), "out", source).copy((m, 0), "out", source)
                hand_out(m, source)
        held *= 2
