"""AllToNext (000 section 6.4, figure 10a; 002 section 7.4)."""

from __future__ import annotations

from gc3.lang import Cost, algorithm, chunk


@algorithm(
    "alltonext",
    chunks=lambda G: G,
    section="000 section 6.4, figure 10a; 002 section 7.4",
    good_for="pipelines over several nodes: a node's last GPU uses all its network links",
    cost=Cost(
        steps="min(G, 3) if N > 1 else min(G-1, 1)",
        sent="(G + 1 + (N > 2 and G > 2) if G > 1 else 1) if N > 1 else (G if G > 1 else 0)",
        of="G",
    ),
)
def alltonext(N: int, G: int) -> None:
    """GPU i sends its buffer to GPU i+1; across nodes, each GPU of a node sends a part of it."""
    for n in range(N):
        for g in range(G):
            if g != G - 1:  # direct intra-node send
                chunk((n, g), "in", 0, sz=G).copy((n, g + 1), "out", 0)
                continue
            # last rank does not send anything
            if n == N - 1:
                continue
            # use G IB links by routing through scatter/gather buffers
            for i in range(G):
                c = chunk((n, g), "in", i)
                if i == 0:
                    c = c.copy((n, 0), "sc", 0)
                    c.copy((n + 1, 0), "out", 0)
                elif i == G - 1:
                    c = c.copy((n + 1, i), "sc", i)
                    c.copy((n + 1, 0), "out", i)
                else:
                    c = c.copy((n, i), "sc", 0)
                    c = c.copy((n + 1, i), "sc", i)
                    c.copy((n + 1, 0), "out", i)
