"""AllToNext in the opposite direction, for the backward pass of a pipeline (000 section 6.4, 002 section 7.4)."""

from __future__ import annotations

from gc3 import collectives
from gc3.lang import Cost, algorithm, chunk


def alltoprevious(N: int, G: int) -> collectives.Collective:
    """Rank r gets the input of rank r+1; the output of the last rank is undefined."""
    R = N * G
    return collectives.custom(
        "alltoprevious",
        inputs=[G] * R,
        outputs=[G] * R,
        expect=lambda rank, index: (rank + 1, index) if rank + 1 < R else None,
        alias=lambda _: ("output", 0),
        summary="rank r gets the input of rank r+1",
    )


@algorithm(
    alltoprevious,
    section="000 section 6.4; 002 section 7.4",
    good_for="the backward pass of pipelines over several nodes: a node's first GPU uses all its network links",
    cost=Cost(
        steps="min(G, 3) if N > 1 else min(G-1, 1)",
        sent="(G + 1 + (N > 2 and G > 2) if G > 1 else 1) if N > 1 else (G if G > 1 else 0)",
        of="G",
    ),
)
def alltonext_backward(N: int, G: int) -> None:
    """GPU i sends its buffer to GPU i-1; across nodes, each GPU of a node sends a part of it."""
    last = G - 1
    for n in range(N):
        for g in range(1, G):  # direct intra-node send
            chunk((n, g), "in", 0, G).copy((n, g - 1), "out", 0)
        if n == 0:
            continue
        for i in range(G):  # each GPU carries one part across
            c = chunk((n, 0), "in", i)
            if i != 0:
                c = c.copy((n, i), "sc", 0)
            if i != last:
                c = c.copy((n - 1, i), "sc", 1)
            c.copy((n - 1, last), "out", i)
