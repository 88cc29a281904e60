"""Chain (pipelined) Gather."""

from __future__ import annotations

from gc3.lang import Cost, algorithm, chunk


@algorithm(
    "gather",
    in_place=True,
    section="textbook",
    good_for="ranks in a line: only neighbours communicate, and blocks are pipelined",
    cost=Cost(steps="R-1", sent="R-1", of="R"),
)
def chain_gather(R: int, root: int = 0) -> None:
    """Each block goes from rank to rank towards the root, the nearest first."""
    for v in range(1, R):  # ranks counted from the root
        c = chunk((root + v) % R, "in", 0)
        for u in range(v - 1, 0, -1):
            c = c.copy((root + u) % R, "sc", v - u - 1)
        c.copy(root, "out", (root + v) % R)
