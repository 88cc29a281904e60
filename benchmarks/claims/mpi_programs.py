"""MPI's algorithms that 004 compares with, in the order of their calls."""

from __future__ import annotations

from gc3.algorithms._order import partner
from gc3.lang import algorithm, chunk


@algorithm("alltoall", section="004 table I")
def pairwise(R: int) -> None:
    """Exchanges with one partner after the other: MPI_Sendrecv, a window of one."""
    for step in range(R):
        for r in range(R):
            peer = partner(r, step, R)
            chunk(r, "in", peer).copy(peer, "out", r)


@algorithm("allgather", in_place=True, section="004 table I")
def ring(R: int) -> None:
    """Each rank passes on to the next what it received in the step before: MPI_Sendrecv, a window of one."""
    for step in range(R - 1):
        for r in range(R):
            index = (r - step) % R
            chunk(r, "out", index).copy((r + 1) % R, "out", index)
