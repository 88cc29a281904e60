"""One-step AllReduce: every rank sends its data to all others, and sums everything itself."""

from __future__ import annotations

from gc3.lang import Cost, algorithm, chunk


@algorithm(
    "allreduce",
    in_place=True,
    section="002 section 7.1.2, in one step instead of two",
    good_for="small messages where ranks share cores: each waits once, for all others together",
    cost=Cost(steps="min(R-1, 1)", sent="R-1", of="1"),
)
def one_step_allreduce(R: int) -> None:
    """Every rank sums the data of ranks 0, 1, ... in this order, so all ranks get the same bits."""
    if R == 1:
        return
    totals = [chunk(0, "in", 0).copy(r, "scratch", 0) for r in range(R)]
    for other in range(1, R):
        totals = [total.reduce(chunk(other, "in", 0)) for total in totals]
    for r, total in enumerate(totals):
        total.copy(r, "out", 0)
