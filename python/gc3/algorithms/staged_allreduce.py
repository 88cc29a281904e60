"""Staged AllReduce: every rank sums its share of all data in scratch, where all ranks then read it."""

from __future__ import annotations

from gc3.lang import Cost, algorithm, chunk


@algorithm(
    "allreduce",
    chunks=lambda R: R,
    in_place=True,
    section="002 section 7.1.2, with the sums in memory that all ranks can read",
    good_for="several ranks on one host: all of them can read scratch directly, unlike a rank's own arrays",
    cost=Cost(steps="2 * min(R-1, 1)", sent="2*(R-1)", of="R"),
)
def staged_allreduce(R: int) -> None:
    """Rank r sums chunk r of all ranks in scratch, starting with its neighbour's, then sends the sum to all."""
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
