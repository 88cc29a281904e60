"""AllGather in the switches of one node or several, with rings between the nodes."""

from __future__ import annotations

from gc3.algorithms._in_switch import copies
from gc3.lang import Cost, algorithm, chunk


@algorithm(
    "allgather",
    in_place=True,
    section="NCCL's NVLS (src/device/all_gather.h), and rings between nodes",
    good_for="nodes whose switches multicast: a GPU's port sends each block once, however many GPUs receive it",
    cost=Cost(steps="min(G-1, 1) + N-1", sent="N*G-1", of="N*G"),
    in_switch=True,
)
def nvls_allgather(G: int, N: int = 1) -> None:
    """Each block goes round the ring of nodes, and whichever GPU of a node receives it multicasts it there."""
    for g in range(G):
        for n in range(N):
            c = chunk((n, g), "out", (n, g))
            copies(n, g, G, n * G + g, buffer="out")
            for distance in range(1, N):
                m = (n + distance) % N
                c = c.copy((m, g), "out", (n, g), ch=2)
                copies(m, g, G, n * G + g, buffer="out")
