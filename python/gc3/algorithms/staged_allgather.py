"""Staged AllGather: every rank copies its block to scratch once, and all ranks read it there."""

from __future__ import annotations

from gc3.lang import Cost, algorithm, chunk


@algorithm(
    "allgather",
    in_place=True,
    section="004 table I, through copies that the ranks share",
    good_for="several ranks on one host: all of them can read scratch directly, unlike a rank's own arrays",
    cost=Cost(steps="min(R-1, 1)", sent="R-1", of="R"),
)
def staged_allgather(R: int) -> None:
    """Copies every block to its rank's scratch, and sends it to all ranks from there, the next rank first."""
    staged = [chunk(r, "out", r).copy(r, "scratch", 0) for r in range(R if R > 1 else 0)]
    for step in range(1, R):
        for r, block in enumerate(staged):
            block.copy((r + step) % R, "out", r)
