"""Direct AllGather (004 table I)."""

from __future__ import annotations

from gc3.lang import Cost, algorithm, chunk


@algorithm(
    "allgather",
    in_place=True,
    section="004 table I",
    good_for="medium messages where all ranks are connected: one step whatever R is",
    cost=Cost(steps="min(R-1, 1)", sent="R-1", of="R"),
)
def direct_allgather(R: int) -> None:
    """Every rank sends its block to all others, the next rank first."""
    for step in range(1, R):
        for r in range(R):
            chunk(r, "out", r).copy((r + step) % R, "out", r)
