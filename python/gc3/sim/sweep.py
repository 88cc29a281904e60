"""Several programs at several sizes on one machine: a table, and the fastest program by size."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import islice, product

from gc3 import collectives
from gc3.sim.predict import UNDISTURBED, Disturbance, Simulation
from gc3.sim.trust import LINKS, Expected, distinguishable, per_cent
from gc3.support.at_once import at_once

# Runs with more slice operations than this are not recorded: their cause is left out.
MOST_RECORDED = 2_000_000
_HEADER = (
    *("bytes", "program", "time_us", "algbw_GBps", "busbw_GBps"),
    *("bound_us", "bound_by", "cause", "cause_share", "winner", "speedup", "chosen"),
    *("scope", "median_error", "p90_error"),
)


@dataclass(frozen=True, slots=True)
class Cell:
    """One program at one size."""

    program: str  # its label
    size: int  # S in bytes
    time_s: float  # seconds
    algbw: float  # GB/s
    busbw: float  # GB/s
    bound_s: float = 0.0  # seconds that the busiest resource needs; 0 if not known
    bound_by: str = ""  # that resource
    cause: str = ""  # the largest part of the critical path; empty if that was not recorded
    share: float = 0.0  # its fraction of the critical path, 0 to 1
    chosen: str = ""  # the program with the settings that were chosen for the size; empty if it is as it was asked for
    expected: Expected | None = None  # what the time is worth; None: it was measured, or only counts steps

    def later(self, shift_s: float) -> Cell:
        """Returns the cell of a call that takes so many seconds longer."""
        part = self.time_s / (self.time_s + shift_s)
        return replace(self, time_s=self.time_s + shift_s, algbw=part * self.algbw, busbw=part * self.busbw)

    def comparable(self, other: Cell) -> bool:
        """Returns whether both times are of links only, or neither is, as what was measured."""
        each = [cell.expected is not None and cell.expected.scope == LINKS for cell in (self, other)]
        return each[0] == each[1]

    @property
    def error(self) -> float:
        """What a lead over it has to exceed."""
        return 0.0 if self.expected is None else self.expected.error


@dataclass(frozen=True, slots=True)
class Row:
    """All programs and baselines at one size."""

    size: int  # S in bytes
    cells: tuple[Cell, ...]  # in the order of the columns
    baseline: str = ""  # the label of the baseline; empty if there is none

    @property
    def winner(self) -> str:
        """The label of the fastest program, the first of equals."""
        return min(self.cells, key=lambda cell: cell.time_s).program

    @property
    def lead(self) -> tuple[str, float] | None:
        """The label of the second-fastest program, and the logarithm of its time over the best; None: there is none."""
        order = self._order
        if len(order) == 1 or order[0].time_s <= 0:
            return None
        return order[1].program, math.log(order[1].time_s / order[0].time_s)

    @property
    def error(self) -> float:
        """What the lead has to exceed: the greater error of the two."""
        return max((cell.error for cell in self._order[:2]), default=0.0)

    @property
    def sure(self) -> bool:
        """Whether the fastest program can be told from the second one."""
        return self.lead is None or (self.lead[1] > self.error and self._order[0].comparable(self._order[1]))

    @property
    def _order(self) -> list[Cell]:
        return sorted(self.cells, key=lambda cell: cell.time_s)

    def distinguishable(self, cell: Cell) -> bool:
        """Returns whether a cell's speed-up over the baseline is more than both may be wrong by."""
        base = next((c for c in self.cells if c.program == self.baseline), cell)
        if base is cell:
            return True
        return base.comparable(cell) and distinguishable(base.time_s, cell.time_s, base.error, cell.error)

    def speedup_text(self, cell: Cell) -> str:
        """Returns the speed-up for people: "~" if it is not distinguishable from 1."""
        found = self.speedup(cell)
        return "" if found is None else f"{found:.2f}" if self.distinguishable(cell) else "~"

    def speedup(self, cell: Cell) -> float | None:
        """Returns the time of the baseline over that of a cell; None if the baseline has none."""
        base = next((c for c in self.cells if c.program == self.baseline), None)
        return None if base is None or cell.time_s <= 0 else base.time_s / cell.time_s


# A function that returns the cell of a size: for a simulated program, a baseline, or a log.
Column = Callable[[int], "Cell | None"]


def column(
    label: str,
    simulation: Simulation,
    *,
    dtype: str = "float32",
    sharing: str = "serial",
    disturbance: Disturbance = UNDISTURBED,
    chosen: str = "",
    beyond: Sequence[str] = (),
) -> Column:
    """Returns a function that simulates a program at a size; see `Cell.chosen` and `Simulation.expected`."""

    def cell(size: int) -> Cell:
        explain = simulation.work(size) <= MOST_RECORDED
        p = simulation.run(size, dtype=dtype, sharing=sharing, disturbance=disturbance, explain=explain)
        cause, share = "", 0.0
        if p.explanation is not None:
            cause, share = p.explanation.cause, max(p.explanation.causes.values(), default=0.0) / (p.time_s or 1.0)
        numbers = (p.size, p.time_s, p.algbw, p.busbw, p.bound_s)
        return Cell(label, *numbers, p.bound_by, cause, share, chosen, simulation.expected(size, *beyond))

    return cell


def alpha_beta_column(label: str, simulation: Simulation) -> Column:
    """Returns a function that computes the alpha-beta cost of a program at a size."""

    def cell(size: int) -> Cell:
        actual, _ = simulation.fit(size)
        cost = simulation.alpha_beta(actual)
        time = cost.time_s(actual)
        algbw = actual / time / 1e9 if time > 0 else 0.0
        busbw = algbw * collectives.factor(simulation.described.collective)
        cause = f"S={cost.steps} R={cost.rounds} C={cost.chunks}"
        return Cell(label, actual, time, algbw, busbw, time - cost.latency_s, "bandwidth term", cause, 1.0)

    return cell


def sweep(
    columns: Sequence[Column],
    sizes: Iterable[int],
    baseline: str = "",
    *,
    begin: Callable[[int], None] = lambda _: None,
) -> Iterator[Row]:
    """Yields a row per size, with the columns that have a value for it; speed-ups are over `baseline`.

    Cells are computed on all cores. Calls `begin` with the size of the next row.
    """
    sizes = list(sizes)
    with closing(at_once(lambda each: each[1](each[0]), product(sizes, columns))) as found:
        for size in sizes:
            begin(size)
            cells = tuple(cell for cell in islice(found, len(columns)) if cell is not None)
            if cells:
                yield Row(size, cells, baseline)


def to_csv(rows: Sequence[Row]) -> str:
    """Returns the rows as CSV; times in microseconds, bandwidths in GB/s.

    >>> to_csv([Row(8, (Cell("a", 8, 1e-6, 0.008, 0.008),))]).splitlines()[1]
    '8,a,1,0.008,0.008,0,,,0,1,,,,,'
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_HEADER)
    for row in rows:
        for c in row.cells:
            numbers = [f"{x:.6g}" for x in (1e6 * c.time_s, c.algbw, c.busbw, 1e6 * c.bound_s)]
            speedup = row.speedup(c)
            last = (int(c.program == row.winner), "" if speedup is None else f"{speedup:.4g}", c.chosen)
            worth = c.expected and (c.expected.scope, c.expected.median, c.expected.p90)
            cells = [c.size, c.program, *numbers, c.bound_by, c.cause, f"{c.share:.3g}", *last]
            writer.writerow([*cells, *(worth or ("", "", ""))])
    return text.getvalue()


def ranges(rows: Sequence[Row]) -> list[list[Row]]:
    """Returns the rows of each range of sizes with one fastest program, which can be told from the second, or not."""
    found: list[list[Row]] = []
    for row in rows:
        if found and (found[-1][0].winner, found[-1][0].sure) == (row.winner, row.sure):
            found[-1].append(row)
        else:
            found.append([row])
    return found


def lead(rows: Sequence[Row]) -> str:
    """Returns how far the fastest program is ahead where that is least, if by more than the times may be wrong by."""
    least = min((row for row in rows if row.lead), key=lambda row: row.lead[1] if row.lead else 0.0, default=None)
    if least is None or least.lead is None or all(cell.expected is None for cell in least.cells):
        return ""
    second, ahead = least.lead
    if least.lead[1] > least.error and not least.sure:
        return f", which cannot be compared with {second}: one time is of links only; preset=NAME names GPUs"
    if not least.sure:
        return f", not distinguishable from {second} (error {per_cent(least.error)})"
    return f", {per_cent(ahead)} or more ahead of {second} (error {per_cent(least.error)})"
