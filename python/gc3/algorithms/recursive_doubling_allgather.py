"""Recursive doubling AllGather (004 table I)."""

from __future__ import annotations

from gc3.algorithms._order import is_pow2
from gc3.algorithms.bruck_allgather import bruck_allgather
from gc3.lang import Cost, algorithm, chunk


@algorithm(
    "allgather",
    in_place=True,
    section="004 table I; Thakur, Rabenseifner, Gropp 2005",
    good_for="small and medium messages on a power of two of ranks: the fewest steps, no scratch",
    cost=Cost(steps="floor_log2(R) + (2*R > 3*pow2(R))", sent="R-1", of="R"),
)
def recursive_doubling_allgather(R: int) -> None:
    """Partners at distance 1, 2, 4, ... swap all they have. If R is not a power of two this is `bruck_allgather`."""
    if not is_pow2(R):
        bruck_allgather(R)
        return
    distance = 1
    while distance < R:
        for r in range(R):
            held = r // distance * distance
            chunk(r, "out", held, distance).copy(r ^ distance, "out", held)
        distance *= 2
