"""Recursive halving-doubling AllReduce (Rabenseifner's algorithm)."""

from __future__ import annotations

from typing import Any

from gc3.algorithms import _one_rank
from gc3.algorithms._order import is_pow2
from gc3.lang import Cost, algorithm, chunk, me
from gc3.lang.formula import pow2


def one_rank(R: int) -> None:
    """The same for powers of two, whose bits are the coordinates of a rank, the highest first."""
    bits = me(*[2] * (R.bit_length() - 1))
    weights = [R >> (k + 1) for k in range(len(bits))]

    def beside(k: int) -> tuple[Any, ...]:
        return (*bits[:k], bits[k] + 1, *bits[k + 1 :])

    def kept(k: int) -> Any:
        out = bits[0] * weights[0]
        for bit, weight in zip(bits[1 : k + 1], weights[1 : k + 1], strict=True):
            out = out + bit * weight
        return out

    for k in range(len(bits)):
        theirs = chunk(beside(k), "in", kept(k), weights[k])
        chunk(bits, "in", kept(k), weights[k]).reduce(theirs)
    for k in reversed(range(len(bits))):
        chunk(bits, "in", kept(k), weights[k]).copy(beside(k))


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
    if R > _one_rank.LOOPED and is_pow2(R):
        one_rank(R)
        return
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
