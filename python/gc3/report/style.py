"""The common part of pictures and pages of a sweep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gc3.sim.sweep import Cell, Row

# Colours that colour-blind readers can distinguish (Okabe and Ito), on white.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6D31", "#882255")
BASELINE = "#555555"
INK = "#333333"
GRID = "#E3E3DE"
_UNITS = ((30, "GiB"), (20, "MiB"), (10, "KiB"), (0, "B"))


@dataclass(frozen=True, slots=True)
class Sweep:
    """A table to be drawn."""

    title: str  # what was simulated
    note: str  # the source of the numbers; may be empty
    rows: Sequence[Row]  # a row per size
    baselines: Sequence[str] = ()  # labels of columns that are baselines; speed-ups are over the first

    @property
    def programs(self) -> list[str]:
        """The labels of all columns: programs first, then baselines."""
        seen = dict.fromkeys(cell.program for row in self.rows for cell in row.cells)
        return [*(p for p in seen if p not in self.baselines), *(p for p in seen if p in self.baselines)]

    def cells(self, program: str) -> list[tuple[Row, Cell]]:
        """Returns the cells of a column, with their rows."""
        return [(row, cell) for row in self.rows for cell in row.cells if cell.program == program and cell.time_s > 0]

    def color(self, program: str) -> str:
        """Returns the colour of a column."""
        if program in self.baselines:
            return BASELINE
        return COLORS[self.programs.index(program) % len(COLORS)]


def short_size(size: float) -> str:
    """Returns a size for an axis.

    >>> [short_size(n) for n in (64, 1536, 1 << 20)]
    ['64 B', '1.5 KiB', '1 MiB']
    """
    for power, unit in _UNITS:
        if size >= 1 << power:
            return f"{size / (1 << power):.3g} {unit}"
    return f"{size:g} B"


def size_ticks(sizes: Sequence[int], most: int = 8) -> list[int]:
    """Returns the powers of two that an axis from the least to the greatest size marks: the sizes, if they are few.

    >>> size_ticks([1 << 10, 1 << 14, 1 << 20], most=3), size_ticks([1 << 10, 1 << 14, 1 << 18])
    ([1024, 32768, 1048576], [1024, 16384, 262144])
    """
    each = sorted({*sizes})
    even = all(before > 0 and after * each[0] == before * each[1] for before, after in pairwise(each))
    if 1 < len(each) <= most and each[0] > 0 and each[0] & (each[0] - 1) == 0 and even:
        return each
    low, high = max(min(sizes), 1), max(*sizes, 1)
    first, last = (low - 1).bit_length(), high.bit_length() - 1
    if last <= first:
        return [low] if low == high else [low, high]
    step = max(1, -(-(last - first) // (most - 1)))
    return [1 << power for power in range(first, last + 1, step)]
