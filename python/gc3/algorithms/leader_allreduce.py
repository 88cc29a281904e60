"""Leader AllReduce: a few ranks sum the data of their groups, exchange the sums, and send the result to all."""

from __future__ import annotations

from gc3.lang import Cost, algorithm, chunk


@algorithm(
    "allreduce",
    in_place=True,
    section="004 section III-A (its leaders), with the sums in memory that all ranks can read",
    good_for="small messages where several ranks share a core: with a leader on each, all others wait only twice",
    cost=Cost(
        steps="(R > 1) + (R > leaders) + (leaders > 1)*(R > leaders+1)",
        sent="min(leaders, R)-1 + (R-1)//leaders",
        of="1",
    ),
)
def leader_allreduce(R: int, leaders: int = 2) -> None:
    """Rank r sends to the leader r modulo `leaders`, leaders send each other their sums, and all read the total.

    Each leader adds the sums in the same order, so all ranks get the same bits.
    """
    leaders = min(leaders, R)
    if R == 1:
        return
    sums = [chunk(leader, "in", 0).copy(leader, "scratch", 0) for leader in range(leaders)]
    for leader in range(leaders):
        for r in range(leader + leaders, R, leaders):
            sums[leader] = sums[leader].reduce(chunk(r, "in", 0))
    for leader in range(leaders):
        total = sums[0].copy(leader, "scratch", 1)
        for other in range(1, leaders):
            total = total.reduce(sums[other])
        total.copy(leader, "out", 0)
        for r in range(leader + leaders, R, leaders):
            total.copy(r, "out", 0)
