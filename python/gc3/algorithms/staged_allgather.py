"""Staged AllGather: every rank copies its block to scratch once, and everyone reads it there."""

from __future__ import annotations

from gc3.lang import Cost, algorithm, chunk


@algorithm(
    "allgather",
    in_place=True,
    section="004 table I, through copies that the ranks share",
    good_for="several ranks on one host: scratch is memory that all of them can read at once, as a rank's own is not",
    cost=Cost(steps="min(R-1, 1)", sent="R-1", of="R"),
)
def staged_allgather(R: int) -> None:
    """Copies every block to its rank's scratch, and sends that to everyone, the next rank first."""
    staged = [chunk(r, "out", r).copy(r, "scratch", 0) for r in range(R if R > 1 else 0)]
    for step in range(1, R):
        for r, block in enumerate(staged):
            block.copy((r + step) % R, "out", r)
