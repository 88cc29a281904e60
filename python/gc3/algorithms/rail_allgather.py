"""AllGather with rings between the nodes and one step inside them."""

from __future__ import annotations

from gc3.algorithms import _one_rank
from gc3.lang import Cost, algorithm, chunk, me


def one_rank(N: int, G: int) -> None:
    """The same."""
    node, gpu = me(N, G)
    for a in range(N):
        c = chunk((node, gpu), "out", (node - a, gpu))
        for other in range(1, G):
            c.copy((node, gpu + other), ch=0)
        if a + 1 < N:
            c.copy((node + 1, gpu), ch=1)


@algorithm(
    "allgather",
    in_place=True,
    section="the exchange of nvls_allgather without multicast",
    good_for="large messages where every GPU has a NIC: switches pass on messages at a higher rate than multicast data",
    cost=Cost(steps="min(G-1, 1) + N-1", sent="N*G-1", of="N*G"),
)
def rail_allgather(N: int, G: int) -> None:
    """Each block goes round the ring of the GPUs g of all nodes, each of which sends it to the others of its node."""
    if N * G > _one_rank.LOOPED:
        one_rank(N, G)
        return
    for g in range(G):
        for n in range(N):
            c = chunk((n, g), "out", (n, g))
            for distance in range(N):
                m = (n + distance) % N
                if distance:
                    c = c.copy((m, g), "out", (n, g), ch=1)
                for other in range(1, G):
                    c.copy((m, (g + other) % G), "out", (n, g), ch=0)
