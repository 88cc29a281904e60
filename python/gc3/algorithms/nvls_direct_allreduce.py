"""AllReduce in the switches of several nodes, with direct messages between the nodes."""

from __future__ import annotations

from gc3.algorithms._in_switch import copies, sums
from gc3.lang import Cost, algorithm, chunk


@algorithm(
    "allreduce",
    chunks=lambda N, G: N * G,
    in_place=True,
    section="002 section 7.1.2 between nodes, with the switches of NCCL's NVLSTree inside them",
    good_for="medium messages on several nodes whose switches add up and multicast: four steps, whatever N is",
    cost=Cost(steps="2 * min(G-1, 1) + 2 * min(N-1, 1)", sent="2*N*(G-1) + 2*(N-1)", of="N*G"),
    in_switch=True,
)
def nvls_direct_allreduce(N: int, G: int) -> None:
    """Each GPU is sent its node's sum of its share; one in each node sums a part of it for all, then all multicast."""
    for n in range(N):
        for g in range(G):
            for m in range(N):
                sums(n, g, G, g * N + m)
    for g in range(G):
        for n in range(N):
            index, away = g * N + n, [((n + distance) % N, g) for distance in range(1, N)]
            total = chunk((n, g), "in", index)
            for other in away:
                total = total.reduce(chunk(other, "in", index), ch=2)
            for other in away:
                total.copy(other, "in", index, ch=3)
    for n in range(N):
        for g in range(G):
            for m in range(N):
                copies(n, g, G, g * N + m)
