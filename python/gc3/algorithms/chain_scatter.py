"""Chain (pipelined) Scatter."""

from __future__ import annotations

from gc3.lang import Cost, algorithm, chunk


@algorithm(
    "scatter",
    in_place=None,
    section="textbook",
    good_for="ranks in a line: only neighbours communicate, and blocks are pipelined",
    cost=Cost(steps="R-1", sent="R-1", of="R"),
)
def chain_scatter(R: int, root: int = 0) -> None:
    """Each block goes from rank to rank to its destination, the one with the longest way first."""
    chunk(root, "in", root).copy(root, "out", 0)
    for v in range(R - 1, 0, -1):  # ranks counted from the root
        c = chunk(root, "in", (root + v) % R)
        for u in range(1, v):
            c = c.copy((root + u) % R, "sc", v - u - 1)
        c.copy((root + v) % R, "out", 0)
