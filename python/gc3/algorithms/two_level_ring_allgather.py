"""Two-level ring AllGather: a ring across nodes for each GPU, and rings inside the nodes."""

from __future__ import annotations

from gc3.algorithms import _one_rank
from gc3.lang import Cost, algorithm, chunk, me


def one_rank(N: int, G: int) -> None:
    """The same."""
    node, gpu = me(N, G)
    _one_rank.all_gather(lambda d: (node + d, gpu), lambda d: (node + d, gpu), N, buffer="out")
    for a in range(N):
        _one_rank.all_gather(lambda d: (node, gpu + d), lambda d, a=a: (node - a, gpu + d), G, buffer="out")


@algorithm(
    "allgather",
    in_place=True,
    section="002 section 2 (the last two phases of figure 3)",
    good_for="large messages on several nodes: each block enters a node once, all GPUs use their network links",
    cost=Cost(steps="N-1 + G-1", sent="N*G-1", of="N*G"),
)
def two_level_ring_allgather(N: int, G: int) -> None:
    """Each block goes round the ring of nodes, and inside each node round the ring of its GPUs."""
    if N * G > _one_rank.LOOPED:
        one_rank(N, G)
        return
    for n in range(N):
        for g in range(G):
            c = chunk((n, g), "out", (n, g))
            for a in range(N):
                if a != 0:
                    c = c.copy(((n + a) % N, g), "out", (n, g))
                inner = c
                for b in range(1, G):
                    inner = inner.copy(((n + a) % N, (g + b) % G), "out", (n, g))
