"""AllReduce in the switches of several nodes, with recursive doubling between the nodes."""

from __future__ import annotations

from gc3.algorithms._in_switch import copies, sums
from gc3.lang import Cost, algorithm, chunk
from gc3.lang.formula import pow2


@algorithm(
    "allreduce",
    chunks=lambda G: G,
    in_place=True,
    section="Thakur, Rabenseifner, Gropp 2005 between nodes, with the switches of NCCL's NVLSTree inside them",
    good_for="smaller messages on several nodes whose switches add up and multicast: few steps between nodes",
    cost=Cost(
        steps="2 * min(G-1, 1) + floor_log2(N) + (N > pow2(N)) + (2*N > 3*pow2(N))",
        sent="2*(G-1) + ceil_log2(N)",
        of="G",
    ),
    in_switch=True,
)
def nvls_doubling_allreduce(N: int, G: int) -> None:
    """Each GPU is sent its node's sum of its share, adds up those of all nodes as partners swap, and multicasts it.

    If N is not a power of two, the nodes beyond the largest one add theirs to a partner's, and get the result from it.
    """
    P = pow2(N)
    for g in range(G):
        for n in range(N):
            sums(n, g, G, g)
        for extra in range(P, N):
            chunk((extra - P, g), "in", g).reduce(chunk((extra, g), "in", g), ch=2)
        distance = 1
        while distance < P:
            for n in range(P):
                chunk((n, g), "in", g).copy((n ^ distance, g), "sc", 0, ch=2)
            for n in range(P):
                chunk((n, g), "in", g).reduce(chunk((n, g), "sc", 0))
            distance *= 2
        for extra in range(P, N):
            chunk((extra - P, g), "in", g).copy((extra, g), "in", g, ch=2)
        for n in range(N):
            copies(n, g, G, g)
