"""Eager pairwise AllToAll with overlap (004 section III-B, algorithm 2)."""

from __future__ import annotations

from gc3.algorithms._order import partner
from gc3.lang import Cost, algorithm, chunk


@algorithm(
    "alltoall",
    section="004 section III-B, algorithm 2",
    good_for="large messages on several nodes: exchanges inside the node overlap with the first ones across nodes",
    cost=Cost(steps="min(N*G-1, 1)", sent="N*G-1", of="N*G"),
)
def eager_pairwise_alltoall(N: int, G: int) -> None:
    """Starts every exchange at once, alternating one across nodes and one inside the node until the latter run out.

    The partners are those of the pairwise exchange: by exclusive or if N (for nodes) or G (for GPUs) is a power of two,
    by shifting otherwise.
    """
    everyone = [(n, g) for n in range(N) for g in range(G)]
    across = [(a, b) for a in range(1, N) for b in range(G)]
    inside = [(0, b) for b in range(G)]
    order = [step for pair in zip(across, inside, strict=False) for step in pair]
    for a, b in order + across[G:] + inside[len(across) :]:
        for n, g in everyone:
            peer = (partner(n, a, N), partner(g, b, G))
            chunk((n, g), "in", peer).copy(peer, "out", (n, g))
