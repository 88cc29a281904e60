"""Direct AllReduce: every rank sums its share of all ranks' data as it arrives, then sends the sum to all."""

from __future__ import annotations

from gc3.lang import Cost, algorithm, chunk


@algorithm(
    "allreduce",
    chunks=lambda R: R,
    in_place=True,
    section="002 section 7.1.2, without scratch memory",
    good_for="shared memory: each rank reads the data in place, and no partial sum is moved",
    cost=Cost(steps="2 * min(R-1, 1)", sent="2*(R-1)", of="R"),
)
def direct_allreduce(R: int) -> None:
    """Rank r sums chunk r of all ranks, starting with its neighbour's, then sends the sum to all."""
    for r in range(R):
        for distance in range(1, R):
            chunk(r, "in", r).reduce(chunk((r + distance) % R, "in", r))
    for distance in range(1, R):
        for r in range(R):
            chunk(r, "in", r).copy((r + distance) % R, "in", r)
