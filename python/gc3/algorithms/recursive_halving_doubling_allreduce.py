"""Recursive halving-doubling AllReduce (Rabenseifner's algorithm)."""

from __future__ import annotations

from gc3.lang import Cost, algorithm, chunk
from gc3.lang.formula import pow2


@algorithm(
    "allreduce",
    chunks=lambda R: pow2(R),  # noqa: PLW0108 - its parameter goes by name
    in_place=True,
    section="Thakur, Rabenseifner, Gropp 2005",
    good_for="medium messages: few steps, and for powers of two the least data, 2(R-1)/R of it",
    cost=Cost(steps="2*ceil_log2(R)", sent="2*(pow2(R)-1) + (pow2(R) if R > pow2(R) else 0)", of="pow2(R)"),
)
def recursive_halving_doubling_allreduce(R: int) -> None:
    """Partners swap and sum halves of halves until each has one chunk, then send the sums back the same way.

    If R is not a power of two, the ranks beyond the largest one first add their input to a partner's, and get the
    result from it at the end.
    """
    P = pow2(R)
    for extra in range(P, R):
        chunk(extra - P, "in", 0, P).reduce(chunk(extra, "in", 0, P))
    distance = P // 2
    while distance:
        for r in range(P):  # r keeps the half that its partner sends
            kept = r // distance * distance
            chunk(r, "in", kept, distance).reduce(chunk(r ^ distance, "in", kept, distance))
        distance //= 2
    distance = 1
    while distance < P:
        for r in range(P):
            done = r // distance * distance
            chunk(r, "in", done, distance).copy(r ^ distance, "in", done)
        distance *= 2
    for extra in range(P, R):
        chunk(extra - P, "in", 0, P).copy(extra, "in", 0)
