"""Two-step AllToAll (002 figure 8, 000 figure 1a)."""

from __future__ import annotations

from gc3.lang import Cost, algorithm, chunk


@algorithm(
    "alltoall",
    section="002 section 7.3, figure 8",
    good_for="several nodes: one network message per pair of GPUs of equal index, G times larger",
    cost=Cost(steps="min(N-1, 1) + min(G-1, 1)", sent="N*(G-1) + (N-1)*G", of="N*G"),
)
def two_step_alltoall(N: int, G: int) -> None:
    """Gathers all blocks for one remote GPU inside the node, then sends them in one message."""
    for n in range(N):
        for g in range(G):
            for m in range(N):
                for i in range(G):
                    c = chunk((m, i), "in", (n, g))
                    if n == m:
                        c.copy((n, g), "out", (m, i))
                    else:
                        c.copy((m, g), "sc", (n, i))
                # Coalesced IB send
                if m != n:
                    c = chunk((m, g), "sc", n * G, sz=G)
                    c.copy((n, g), "out", m * G)
