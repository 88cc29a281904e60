"""AllReduce in the switches of several nodes, with rings between the nodes."""

from __future__ import annotations

from gc3.algorithms._in_switch import copies, sums
from gc3.algorithms._ring import all_gather, reduce_scatter
from gc3.lang import Cost, algorithm


@algorithm(
    "allreduce",
    chunks=lambda N, G: N * G,
    in_place=True,
    section="NCCL's NVLSTree (src/device/all_reduce.h, RunWorkNvlsTree), with rings instead of trees",
    good_for="large messages on several nodes whose switches add up and multicast: the least data on ports and NICs",
    cost=Cost(steps="2 * min(G-1, 1) + 2*(N-1)", sent="2*N*(G-1) + 2*(N-1)", of="N*G"),
    in_switch=True,
)
def nvls_ring_allreduce(N: int, G: int) -> None:
    """Each GPU is sent its node's sum of its share, reduces it round the ring of nodes, and multicasts the results."""
    for n in range(N):
        for g in range(G):
            for m in range(N):
                sums(n, g, G, g * N + m)
    for g in range(G):
        across = [n * G + g for n in range(N)]
        reduce_scatter(across, range(g * N, (g + 1) * N), ch=2)
        all_gather(across, range(g * N, (g + 1) * N), ch=3)
    for n in range(N):
        for g in range(G):
            for m in range(N):
                copies(n, g, G, g * N + m)
