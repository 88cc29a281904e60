"""Bruck's AllToAll (004 table I, Bruck et al. 1997)."""

from __future__ import annotations

from gc3.lang import Cost, algorithm, chunk


@algorithm(
    "alltoall",
    scratch=("packed", "received"),
    section="004 table I; Bruck et al. 1997",
    good_for="small messages: a logarithm of steps, though each block crosses the network several times",
    cost=Cost(steps="floor_log2(R) + (2*R > 3*pow2(R))", sent="ones(R)", of="R"),
)
def bruck_alltoall(R: int) -> None:
    """A block for the rank j places further travels 2^k places for every one bit k of j; each step sends one message.

    The first rotation of the literature is only an index calculation here: block j of a rank is the one for the rank j
    places further.
    """
    received: dict[int, int] = {}  # block -> its location after the last receive, the same on all ranks
    packed = arrived = 0
    distance = 1
    while distance < R:
        moving = [j for j in range(R) if j & distance]
        for r in range(R):
            for slot, j in enumerate(moving, packed):
                c = chunk(r, "received", received[j]) if j in received else chunk(r, "in", (r + j) % R)
                c.copy(r, "packed", slot)
        for r in range(R):
            chunk(r, "packed", packed, len(moving)).copy((r + distance) % R, "received", arrived)
        received.update({j: slot for slot, j in enumerate(moving, arrived)})
        packed += len(moving)
        arrived += len(moving)
        distance *= 2
    for r in range(R):
        chunk(r, "in", r).copy(r, "out", r)
        for j, slot in received.items():
            chunk(r, "received", slot).copy(r, "out", (r - j) % R)
