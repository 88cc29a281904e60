"""Recursive doubling AllReduce."""

from __future__ import annotations

from gc3.lang import Cost, algorithm, chunk
from gc3.lang.formula import pow2


@algorithm(
    "allreduce",
    in_place=True,
    section="Thakur, Rabenseifner, Gropp 2005",
    good_for="small messages: the fewest steps without sending to all, but each carries the whole buffer",
    cost=Cost(steps="floor_log2(R) + (R > pow2(R)) + (2*R > 3*pow2(R))", sent="ceil_log2(R)", of="1"),
)
def recursive_doubling_allreduce(R: int) -> None:
    """Partners at distance 1, 2, 4, ... swap their partial sums.

    If R is not a power of two, the ranks beyond the largest one first add their input to a partner's, and get the
    result from it at the end.
    """
    P = pow2(R)
    for extra in range(P, R):
        chunk(extra - P, "in", 0).reduce(chunk(extra, "in", 0))
    distance = 1
    while distance < P:
        for r in range(P):
            chunk(r, "in", 0).copy(r ^ distance, "sc", 0)
        for r in range(P):
            chunk(r, "in", 0).reduce(chunk(r, "sc", 0))
        distance *= 2
    for extra in range(P, R):
        chunk(extra - P, "in", 0).copy(extra, "in", 0)
