"""Converts measured points to the rows of a selection table.

A change of program from one size to the next counts as being 5 % slower at one size. So programs of nearly equal speed
do not alternate, and each row serves one range of sizes without a gap. A program other than the default table's must be
3 % faster. No size has a program that is slower than its best by more than that, as far as the measurement tells.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import Any

from gc3 import _core, collectives, errors
from gc3.comm.selection import FORMAT, Row
from gc3.comm.spec import Spec
from gc3.tune.goal import Goal, Measured
from gc3.tune.space import FIRST_DIRECT
from gc3.tune.surrogate import LEAST

CHANGE = math.log(1.05)
OTHER = math.log(1.03)
MOST_LOST = 1.03  # how many times as long as the best one a program may take where it serves a size
REFERENCE = Spec("", ())  # not a program of gc3: what is compared with
_APART = 4  # times as large: the sizes of most commands
SIMULATED_CHANGE = math.log(1.005)  # simulated times have no noise


@dataclass(frozen=True, slots=True)
class Range:
    """A range of sizes that one program serves.

    Attributes:
        collective: Name.
        ranks: Number of ranks.
        first: The first S in bytes.
        end: The first that is too large.
        in_place: The mode; None: both.
        spec: The program.
        points: The points it was chosen at.
        skew: The first skew of blocks, and the first that is too large; None: no end.
        root: The root of the calls that it serves; None: any.
    """

    collective: str
    ranks: int
    first: int
    end: int
    in_place: bool | None
    spec: Spec
    points: tuple[Measured, ...]
    skew: tuple[float, float | None] = (1.0, None)
    root: int | None = None

    def row(self) -> dict[str, Any]:
        """Returns the range as a row of a table."""
        limits = _core.Limits(
            (self.ranks, self.ranks), (self.first, self.end), self.in_place, self.root, skew=self.skew
        )
        note = "tuned: " + ", ".join(self._point(point) for point in self.points)
        return Row(self.collective, limits, self.spec, note, "", condition=self.points[0].condition).data()

    def _point(self, point: Measured) -> str:
        took = dict(point.times_us)[self.spec]
        compared = point.default not in (None, self.spec) and not (point.intervals_us and point.gain is None)
        than = f" (default {point.default_us:.4g})" if compared else ""
        if point.reference is not None:
            name, other = point.reference
            than = f" ({name} {other:.4g})"
        return f"{took:.4g} us{than} at {point.size} B"


def assigned(points: Sequence[Measured], change: float = CHANGE, other: float = OTHER) -> list[Spec]:
    """Returns the program for each of some points of one collective and number of ranks, sizes ascending.

    Minimizes the sum of the logarithms of the times and of the costs of changes and of programs other than the default.
    Among equals it takes the program that comes first in the candidates. A program does not serve a size at which the
    whole interval of its time is above MOST_LOST times that of the best one.

    Args:
        points: The points.
        change: The cost of another program than at the size before: the logarithm of how much faster it must be.
        other: The cost of another program than the default.
    """
    known = list(dict.fromkeys(spec for point in points for spec, _ in point.times_us))
    cost = dict.fromkeys(known, 0.0)
    came_from: list[dict[Spec, Spec]] = []
    for number, point in enumerate(points):
        times = dict(point.times_us)
        cheapest = min(known, key=lambda spec: cost[spec])
        previous: dict[Spec, Spec] = {}
        total: dict[Spec, float] = {}
        for spec in known:
            changed = cost[cheapest] + (change if number else 0)
            previous[spec] = spec if cost[spec] <= changed else cheapest
            here = math.log(max(times[spec], 1e6 * LEAST)) if spec in times and _serves(point, spec) else math.inf
            total[spec] = min(cost[spec], changed) + here + (other if spec != point.default else 0)
        cost = total
        came_from.append(previous)
    chosen = [min(known, key=lambda spec: cost[spec])]
    for previous in reversed(came_from[1:]):
        chosen.append(previous[chosen[-1]])
    return chosen[::-1]


def _serves(point: Measured, spec: Spec) -> bool:
    """Whether a program may be less than MOST_LOST times as slow as the best one of a point."""
    interval = point.interval_of(spec)
    least = dict(point.times_us)[spec] if interval is None else interval[0]
    return least <= MOST_LOST * point.best[1]


def ranges(
    points: Sequence[Measured],
    sizes: Sequence[int],
    *,
    change: float = CHANGE,
    other: float = OTHER,
    with_reference: bool = False,
) -> list[Range]:
    """Returns the ranges for points; `sizes` are all sizes that were to be measured, ascending; see `assigned`.

    With `with_reference` the reference of the points, such as NCCL, competes; its ranges have the program REFERENCE.

    A boundary lies halfway between two measured sizes, or skews, on a logarithmic scale, and the ends halfway to the
    next of `sizes`, where no point is. The first of `sizes` and the last are as far from the ends, or half of a factor
    of 2 if there is one size: nothing is known of other sizes, so the default table serves them.
    """
    found: list[Range] = []
    if not sizes or any(a >= errors.whole(b, "size", 0, 2**63 - 1) for a, b in pairwise([-1, *sizes])):
        raise errors.error("BadArgument", f"sizes={sizes!r}; expected at least one size, ascending")
    smaller, *_, larger = boundaries(sizes)
    skews: dict[tuple[str, int], set[float]] = {}
    for point in points:
        skews.setdefault((point.collective, point.ranks), set()).add(point.skew)
    for (collective, ranks, skew), group in groupby(points, key=lambda p: (p.collective, p.ranks, p.skew)):
        measured = [_with_reference(point) if with_reference else point for point in group]
        between = _between(sorted(skews[collective, ranks]), skew)
        chosen = assigned(measured, change, other)
        before = [size for size in sizes if size < measured[0].size]
        first = halfway(before[-1], measured[0].size) if before else smaller
        for spec, members in groupby(zip(measured, chosen, strict=True), key=lambda pair: pair[1]):
            served = tuple(point for point, _ in members)
            last = served[-1].size
            known = [point.size for point in measured if point.size > last]
            after = known[:1] or [size for size in sizes if size > last][:1]
            end = halfway(last, after[0]) if after else larger
            mode = root = None
            if spec != REFERENCE:
                mode = _mode(spec, ranks, in_place=served[0].in_place)
                root = _root(spec, collective, ranks, in_place=served[0].in_place)
            found.append(Range(collective, ranks, first, end, mode, spec, served, between, root))
            first = end
    return found


def halfway(size: int, larger: int) -> int:
    """Returns the boundary between two sizes: the first that belongs to the larger one."""
    return max(math.isqrt(size * larger), size + 1)


def boundaries(sizes: Sequence[int]) -> list[int]:
    """Returns the first size that belongs to each of some sizes, ascending, and the first that is beyond all.

    >>> boundaries([1024, 4096]), boundaries([1024]), boundaries([0])
    ([512, 2048, 8192], [724, 1448], [0, 1])
    """
    smaller, larger = math.isqrt(sizes[0] ** 2 // 2), math.isqrt(sizes[-1] ** 2 * 2)
    if len(sizes) > 1:
        smaller, larger = math.isqrt(sizes[0] ** 3 // sizes[1]), math.isqrt(sizes[-1] ** 3 // max(sizes[-2], 1))
    return [smaller, *(halfway(*both) for both in pairwise(sizes)), max(larger, sizes[-1] + 1)]


def registered_ranges(points: Sequence[Measured], sizes: Sequence[int] = ()) -> list[Range]:
    """Returns the ranges in which a one-sided program is the fastest on registered memory; see `ranges`.

    `sizes`: those that were to be measured, beside those of the points.

    Their rows come before those of `ranges`, which serve calls on other memory. None reaches across a size that was not
    measured on registered memory, or below the least size of such programs.
    """
    sizes = sorted({*sizes, *(point.size for point in points)})
    found: list[Range] = []
    for _, group in groupby(points, key=lambda p: (p.collective, p.ranks, p.skew, bool(p.registered_us))):
        together = [_on_registered_memory(point) for point in group if point.registered_us]
        if not together:
            continue
        made = ranges(together, sizes, with_reference=True)
        made = [replace(each, first=max(each.first, FIRST_DIRECT)) for each in made]
        found += [each for each in made if each.spec != REFERENCE and each.first < each.end]
    return found


def kept_ranges(points: Iterable[Measured], goal: Goal) -> list[Range]:
    """Returns the ranges for the points of a goal and of earlier ones, whose sizes without a point are not known.

    So the ends of each collective and number of ranks are as far away as its own sizes are apart, and never further
    than half of a factor of 4.
    """

    def key(point: Measured) -> tuple[int, str]:
        return point.ranks, point.collective

    found: list[Range] = []
    for (ranks, collective), members in groupby(sorted(points, key=lambda p: (*key(p), p.skew, p.size)), key=key):
        group = list(members)
        known = {point.size for point in group}
        first, last = min(known), max(known)
        wanted = goal.sizes if ranks in goal.ranks and collective in goal.collectives else ()
        sizes = sorted({*known, *wanted, min(_APART * first, last), max(last // _APART, first)})
        found += registered_ranges(group, sizes) + ranges(group, sizes)
    return found


def _on_registered_memory(point: Measured) -> Measured:
    """The point with the times on registered memory; the reference is the best program of messages."""
    (_, messages), *direct = point.registered_us
    than = ("messages", messages)
    return replace(point, times_us=tuple(direct), default=REFERENCE, intervals_us=(), reference=than)


def _with_reference(point: Measured) -> Measured:
    if point.reference is None:
        return point
    return replace(point, times_us=(*point.times_us, (REFERENCE, point.reference[1])))


def table(rows: Iterable[dict[str, Any]], machine: str | None = None, engine: str = "processes") -> dict[str, Any]:
    """Returns the table that `gc3.init(table=...)` and `gc3 table` read.

    Args:
        rows: The rows.
        machine: The one it was measured on.
        engine: Where programs were timed: "processes", "threads" or "sim".
    """
    on = {"measured_on": [machine]} if machine else {}
    return {"format": FORMAT, **on, "engine": engine, "rows": list(rows)}


def _between(skews: Sequence[float], skew: float) -> tuple[float, float | None]:
    """The skews that are nearest to one of those measured, on a logarithmic scale."""
    at = skews.index(skew)
    ends = [round(math.sqrt(a * b), 3) for a, b in pairwise(skews)]
    return (ends[at - 1] if at else 1.0), (ends[at] if at < len(ends) else None)


def _root(spec: Spec, collective: str, ranks: int, *, in_place: bool) -> int | None:
    """None if the program also works for another root than 0, for which it was measured."""
    if ranks == 1 or collective not in collectives.BUILTIN or not collectives.get(collective).rooted:
        return None
    try:
        return None if spec.compile(ranks, root=1, in_place=in_place, prove=False).collective.root == 1 else 0
    except errors.UserError:
        return 0


def _mode(spec: Spec, ranks: int, *, in_place: bool) -> bool | None:
    """None if the program also works in the mode in which it was not measured."""
    try:
        spec.compile(ranks, in_place=not in_place)
    except errors.UserError:
        return in_place
    return None
