"""Two-step AllToAll (002 figure 8, 000 figure 1a)."""

from __future__ import annotations

from gc3.algorithms import _one_rank
from gc3.lang import Cost, algorithm, chunk, me


def one_rank(N: int, G: int) -> None:
    """The same."""
    node, gpu = me(N, G)
    for a in range(N):
        for b in range(G):
            c = chunk((node, gpu), "in", (node + a, gpu + b))
            if a == 0:
                c.copy((node, gpu + b), "out", (node, gpu))
            else:
                c.copy((node, gpu + b), "sc", (node + a, gpu))
        if a:
            chunk((node, gpu), "sc", (node + a) * G, sz=G).copy((node + a, gpu), "out", node * G)


@algorithm(
    "alltoall",
    section="002 section 7.3, figure 8",
    good_for="several nodes: one network message per pair of GPUs of equal index, G times larger",
    cost=Cost(steps="min(N-1, 1) + min(G-1, 1)", sent="N*(G-1) + (N-1)*G", of="N*G"),
)
def two_step_alltoall(N: int, G: int) -> None:
    """Gathers all blocks for one remote GPU inside the node, then sends them in one message."""
    if N * G > _one_rank.LOOPED:
        one_rank(N, G)
        return
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
