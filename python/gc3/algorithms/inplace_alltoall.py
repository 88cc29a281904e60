"""In-place AllToAll (004 table I)."""

from __future__ import annotations

from gc3.lang import Cost, algorithm, chunk


@algorithm(
    "alltoall",
    in_place=True,
    section="004 table I",
    good_for="buffers too large to hold twice: every pair swaps its blocks through one chunk of scratch",
    cost=Cost(steps="min(R-1, 1)", sent="R-1", of="R"),
)
def inplace_alltoall(R: int) -> None:
    """Every pair of ranks swaps two blocks in place."""
    for step in range(1, R):
        for low in range(R - step):
            high = low + step
            parked = chunk(low, "out", high).copy(high, "sc", 0)
            chunk(high, "out", low).copy(low, "out", high)
            parked.copy(high, "out", low)
