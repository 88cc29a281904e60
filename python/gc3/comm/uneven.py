"""Blocks of different lengths, for measuring calls of the v-forms."""

from __future__ import annotations

import random
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gc3 import _core

_STEPS = 40  # of the bisection
_STEEPEST = 64.0  # the exponent with which all is in one block


def uneven(blocks: int, total: int, skew: float) -> list[int]:
    """Returns lengths of blocks with a sum and a skew, by Zipf's law, in an order that looks random.

    Args:
        blocks: How many.
        total: Their sum.
        skew: The longest divided by the mean, from 1 to `blocks`.

    >>> uneven(4, 100, 2.0)
    [15, 50, 11, 24]
    >>> uneven(3, 6, 1.0), uneven(3, 6, 3.0)
    ([2, 2, 2], [0, 0, 6])
    """

    def shares(exponent: float) -> list[float]:
        weights = [(place + 1) ** -exponent for place in range(blocks)]
        total_weight = sum(weights)
        return [weight / total_weight for weight in weights]

    low, high = 0.0, _STEEPEST
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if shares(middle)[0] * blocks < skew else (low, middle)
    ends = [round(total * share) for share in accumulate(shares(high))]
    lengths = [end - start for start, end in zip([0, *ends], ends, strict=False)]
    random.Random(blocks).shuffle(lengths)  # noqa: S311  the same for all ranks
    return lengths


def elements_of(model: _core.Collective, size: int) -> int:
    """Returns the elements of float32 of all blocks together, in a call with S = `size` bytes."""
    largest = max(max(model.input_blocks(rank), model.output_blocks(rank)) for rank in range(model.ranks))
    return -(-size // 4) * max(model.v_counts // largest, 1)
