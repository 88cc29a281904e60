"""Staged AllReduce: every rank sums its share of everyone's data in scratch, where everyone then reads it."""

from __future__ import annotations

from gc3.lang import Cost, algorithm, chunk


@algorithm(
    "allreduce",
    chunks=lambda R: R,
    in_place=True,
    section="002 section 7.1.2, with the sums where all ranks can read them",
    good_for="several ranks on one host: scratch is memory that all of them can read at once, as a rank's own is not",
    cost=Cost(steps="2 * min(R-1, 1)", sent="2*(R-1)", of="R"),
)
def staged_allreduce(R: int) -> None:
    """Rank r adds up chunk r of all ranks in scratch, its neighbour's first, then sends the sum to everyone."""
    if R == 1:
        return
    sums = [chunk(r, "in", r).copy(r, "scratch", 0) for r in range(R)]
    for r in range(R):
        for distance in range(1, R):
            sums[r] = sums[r].reduce(chunk((r + distance) % R, "in", r))
        sums[r].copy(r, "out", r)
    for distance in range(1, R):
        for r in range(R):
            sums[r].copy((r + distance) % R, "out", r)
