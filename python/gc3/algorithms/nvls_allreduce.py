"""AllReduce in the switch: it adds up each rank's share of all ranks' data, and multicasts the sums."""

from __future__ import annotations

from gc3.lang import Cost, algorithm, chunk


@algorithm(
    "allreduce",
    chunks=lambda R: R,
    in_place=True,
    section="NCCL's NVLS (src/device/all_reduce.h, RunWorkNvls), for switches that add up and multicast",
    good_for="large messages on one node whose switches add up and multicast (NVSwitch of H100 and newer)",
    cost=Cost(steps="2 * min(R-1, 1)", sent="2*(R-1)", of="R"),
    in_switch=True,
)
def nvls_allreduce(R: int) -> None:
    """Rank r is sent the sum of all ranks' chunk r, and multicasts it; different channels let both overlap."""
    for r in range(R):
        others = [(r + distance) % R for distance in range(1, R)]
        if others:
            total = chunk(r, "in", r).multireduce([chunk(other, "in", r) for other in others], ch=0)
            total.multicast(others, ch=1)
