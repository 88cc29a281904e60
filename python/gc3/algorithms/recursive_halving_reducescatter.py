"""Recursive halving ReduceScatter."""

from __future__ import annotations

from gc3.lang import Cost, algorithm, chunk
from gc3.lang.formula import pow2


@algorithm(
    "reducescatter",
    in_place=True,
    section="Thakur, Rabenseifner, Gropp 2005",
    good_for="small and medium messages: a logarithm of steps with the least data for powers of two",
    cost=Cost(steps="floor_log2(R) + (R > pow2(R)) + (2*R > 3*pow2(R))", sent="R-1 if R == pow2(R) else R", of="R"),
)
def recursive_halving_reducescatter(R: int) -> None:
    """Partners swap and sum halves of halves of the blocks until each has its own.

    If R is not a power of two, the ranks beyond the largest one, P, first add their input to that of the rank P before
    them. That rank then handles two blocks and sends the second back at the end.
    """
    P = pow2(R)
    for extra in range(P, R):
        chunk(extra - P, "in", 0, R).reduce(chunk(extra, "in", 0, R))
    distance = P // 2
    while distance:
        for r in range(P):  # r keeps the half that its partner sends: blocks for ranks below P, and beyond
            kept = r // distance * distance
            for first, last in ((kept, kept + distance), (P + kept, min(P + kept + distance, R))):
                if first < last:
                    c = chunk(r ^ distance, "in", first, last - first)
                    chunk(r, "in", first, last - first).reduce(c)
        distance //= 2
    for extra in range(P, R):
        chunk(extra - P, "in", extra).copy(extra, "in", extra)
