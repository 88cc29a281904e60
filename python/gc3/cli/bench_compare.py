"""--compare and --picture of gc3 bench."""

from __future__ import annotations

import copy
import math
import secrets
import statistics
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from gc3 import errors
from gc3.cli import sizes
from gc3.report import svg, times
from gc3.runtime import measure
from gc3.support import files, schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from gc3.runtime.measure import Measurement, Row, Timer
    from gc3.runtime.program import Program

MODES = {"out_of_place": "out of place", "in_place": "in place"}
# Runs at other times differ by more than the iterations of one run do, so the noise is how the earlier runs differ: a
# further run lies in the interval of prediction of their logarithms with a confidence of 99.5 % (Student's t for ten
# runs). On a machine under load runs are fast or slow by turns: what lies outside is measured again, and must lie
# outside on the same side each time, as three quarters of its iterations must. That is with engines made anew and after
# a pause, since a thread may share its core with others' as long as it lives. Where threads had no core for most of the
# time, the iterations last as long as other programs run: such a run says nothing.
_STUDENT = 3.690
_ENOUGH = 10
_AGAIN = 5
_PAUSE_S = 0.5
_STARVED = 2 / 3
# Programs that are at hand run in pairs, with engines made anew for each pair, since also where an engine's memory and
# processes come to lie makes a few percent. Which of a pair goes first is drawn: without a difference each is then as
# often the slower one by as much, whatever else the machine does, and the signed-rank test is exact. _RISK is that of
# all the comparisons of a run together.
_RISK = 0.005
_TURN_S = 0.02
BESIDE_LESS = "some runs do not count, since their threads waited for cores most of the time: run them beside less work"
_OR_NOT = {"type": ["object", "null"]}
_PROGRAM = {**schema.record(collective=schema.TEXT, ranks=schema.COUNT), **_OR_NOT}
_MODE = {**schema.record({"waited": schema.TIME, "time_us": schema.TIME}, median_us=schema.TIME), **_OR_NOT}
_SCHEMA = schema.record(
    programs={
        **schema.record(**dict.fromkeys(MODES, _PROGRAM)),
        "anyOf": [{"properties": {mode: {"type": "object"}}} for mode in MODES],
    },
    settings=schema.record(iterations=schema.COUNT, engine=schema.TEXT, dtype=schema.TEXT, op=schema.TEXT),
    rows=schema.array(schema.record(size=schema.COUNT, **dict.fromkeys(MODES, _MODE))),
)


@dataclass(frozen=True, slots=True)
class Difference:
    """One mode at one size, then and now."""

    size: int  # S in bytes
    mode: str  # "out_of_place" or "in_place"
    before_us: float  # the median iteration then: the geometric mean of the runs
    now_us: float  # and now
    # whether it differs by more than the earlier runs do; None if they are too few to tell, or if repeats are now
    # slower and now faster by more than that
    outside_noise: bool | None

    def __str__(self) -> str:
        """Describes it, as "3.0% slower at 1 MiB out of place, outside the noise (51.5 us, was 50 us)"."""
        where = f"at {sizes.format_size(self.size)} {MODES[self.mode]}"
        change = self.now_us / self.before_us - 1 if self.before_us else 0.0
        told = f"({self.now_us:.4g} us, was {self.before_us:.4g} us)"
        if not self.outside_noise:
            return (
                f"{change:+.1%} {where}, {'noise unknown' if self.outside_noise is None else 'within the noise'} {told}"
            )
        return f"{abs(change):.1%} {'slower' if change > 0 else 'faster'} {where}, outside the noise {told}"


class Earlier:
    """What `gc3 bench --json` printed earlier, in one or more runs."""

    def __init__(self, paths: Sequence[str]) -> None:
        """Reads the files of the runs.

        Raises:
            gc3.UserError: One cannot be read, or is not such a file.
        """
        self.path = ", ".join(paths)
        self._beside_much = False  # whether there are runs whose threads waited for cores
        self._about: dict[str, dict[str, Any]] = {}
        self.rows: dict[tuple[int, str], list[float]] = {}
        read: dict[str, Any] = {}
        for path in paths:
            data = files.read_json(path, "BadMeasurements")
            what = "what this version of `gc3 bench --json` prints"
            schema.check(data, _SCHEMA, "BadMeasurements", file=path, what=what)
            same = next((other for other, known in read.items() if known == data), None)
            if same is not None:
                raise errors.error("BadMeasurements", f"it has the same run as '{same}'; give each run once", file=path)
            read[path] = data
            self._about[path] = self._what(data["programs"], data["settings"])
            for row in data["rows"]:
                for mode in MODES:
                    if row[mode] is not None:
                        median = float(row[mode]["median_us"])
                        known = self.rows.setdefault((row["size"], mode), [])
                        if _starved(median, row[mode].get("time_us", median), row[mode].get("waited", 0)):
                            self._beside_much = True
                        else:
                            known.append(median)

    @staticmethod
    def _what(programs: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
        info: Mapping[str, Any] = next(p for p in programs.values() if p is not None)
        found: dict[str, Any] = {key: info[key] for key in ("collective", "ranks")}
        return found | {key: settings[key] for key in ("engine", "dtype", "op", "iterations")}

    def check(self, programs: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
        """Refuses to compare what is not alike.

        Raises:
            click.UsageError: With what differs.
        """
        now = self._what(programs, settings)
        for path, about in self._about.items():
            other = [f"{key} {about[key]}, not {value}" for key, value in now.items() if about[key] != value]
            if other:
                raise click.UsageError(f"'{path}' cannot be compared: it has {', '.join(other)}")

    def differences(self, rows: Sequence[Row], again: Callable[[Row, str], Measurement]) -> Iterator[Difference]:
        """Yields what can be compared: the sizes and modes that both have.

        Args:
            rows: The rows of this run.
            again: Measures a row once more in a mode, with an engine made anew.
        """
        found: dict[tuple[int, str], Difference] = {}
        places = {row.size: row for row in rows}
        for row in rows:
            for mode in MODES:
                measured: Measurement | None = getattr(row, mode)
                before = self.rows.get((row.size, mode))
                if measured is not None and before is not None:
                    found[row.size, mode] = self._judged(row.size, mode, measured)
        for _ in range(_AGAIN):
            outside = [each for each in found.values() if each.outside_noise]
            if outside:
                time.sleep(_PAUSE_S)
            for first in outside:
                at = first.size, first.mode
                other = self._judged(*at, again(places[first.size], first.mode))
                if not other.outside_noise:
                    found[at] = other
                elif (other.now_us > other.before_us) != (first.now_us > first.before_us):
                    # Outside on both sides: runs differ now by more than the earlier ones tell.
                    found[at] = replace(other, outside_noise=None)
        yield from found.values()

    def _judged(self, size: int, mode: str, run: Measurement) -> Difference:
        found = difference(size, mode, self.rows[size, mode], run.median_us, (run.quarter_us, run.three_quarters_us))
        if found.outside_noise and _starved(run.median_us, run.time_us, run.waited):
            self._beside_much = True
            return replace(found, outside_noise=None)
        return found

    def advice(self) -> str:
        """Says what is needed to tell differences from noise; "" if there are enough runs."""
        fewest = min(map(len, self.rows.values()), default=_ENOUGH)
        more = (
            f"{_ENOUGH - fewest} or more further runs: they tell how much runs differ (--compare takes several files)"
        )
        told = [f"to tell differences from noise, compare with {more}"] if fewest < _ENOUGH else []
        return "; ".join([*told, *([BESIDE_LESS] if self._beside_much else [])])

    def series(self) -> dict[str, list[tuple[int, float]]]:
        """Returns the median times in seconds by mode, for a chart."""
        found: dict[str, list[tuple[int, float]]] = {}
        for (size, mode), runs in sorted(self.rows.items()):
            found.setdefault(f"{MODES[mode]}, {self.path}", []).append((size, statistics.median(runs) * 1e-6))
        return found


def _starved(median_us: float, mean_us: float, waited: float) -> bool:
    """Whether a thread had no core for most of a run, and not once for long: then other iterations show the time."""
    return waited > _STARVED and 3 * median_us > mean_us


def difference(
    size: int, mode: str, before: Sequence[float], now: float, half: tuple[float, float] | None = None
) -> Difference:
    """Compares the time of a run with those of earlier runs, all in microseconds.

    `half`: between which the middle half of the run's iterations lies.

    >>> difference(1024, "in_place", [100, 101, 99, 100, 100] * 2, 102).outside_noise
    False
    >>> difference(1024, "in_place", [100, 101, 99, 100, 100] * 2, 103).outside_noise
    True
    >>> difference(1024, "in_place", [100, 101, 99, 100, 100] * 2, 103, (101, 130)).outside_noise
    False
    """
    logs = [math.log(max(time, 1e-6)) for time in before]
    centre = statistics.fmean(logs) if logs else math.log(max(now, 1e-6))
    outside = None
    if len(logs) >= _ENOUGH:
        width = _STUDENT * statistics.stdev(logs) * math.sqrt(1 + 1 / len(logs))
        least, most = half or (now, now)
        nearest = min(max(math.exp(centre), least), most)
        outside = abs(math.log(max(nearest, 1e-6)) - centre) > width + 1e-9  # rounding, where the runs are equal
    return Difference(size, mode, math.exp(centre), now, outside)


def common(
    ours: Mapping[str, Program | None], others: Mapping[str, Program | None]
) -> dict[str, tuple[Program, Program]]:
    """Returns the modes that programs of one collective have in common.

    Raises:
        click.UsageError: There are none, with what differs.
    """
    found: dict[str, tuple[Program, Program]] = {}
    for mode in MODES:
        our, other = ours[mode], others[mode]
        if our is not None and other is not None:
            now, then = our.info(), other.info()
            differing = [f"{k} {then[k]}, not {now[k]}" for k in ("collective", "ranks", "root") if now[k] != then[k]]
            if differing:
                raise click.UsageError(f"'{other.name}' cannot be compared: it has {', '.join(differing)}")
            found[mode] = our, other
    if not found:
        raise click.UsageError("one program works in place and the other out of place: they cannot be compared")
    return found


def in_pairs(
    programs: Mapping[str, tuple[Program, Program]],
    rows: Sequence[Row],
    engine: Callable[[], AbstractContextManager[Timer]],
    settings: Mapping[str, Any],
) -> Iterator[Difference]:
    """Compares two programs in each mode, at the sizes of the rows.

    Args:
        programs: That of this run and the other one, by mode.
        rows: The rows of this run.
        engine: Makes an engine.
        settings: Those of this run.
    """
    among = len(programs) * len(rows)
    pairs: dict[tuple[int, str], list[tuple[float, float]]] = {}
    for mode, both in programs.items():
        for _ in range(12 + among.bit_length()):  # so many that _RISK leaves room for a few that say otherwise
            made = [fresh(program) for program in both]
            first = secrets.randbelow(2)
            with engine() as timer:
                for row in rows:
                    early, late = (_turn(made[which], mode, row, timer, settings) for which in (first, 1 - first))
                    pairs.setdefault((row.size, mode), []).append((late, early) if first else (early, late))
    for row in rows:
        yield from (judged(row.size, mode, pairs[row.size, mode], _RISK / among) for mode in programs)


def fresh(program: Program) -> Program:
    """Returns the same program without an engine, which is proven."""
    made = copy.copy(program)
    made.trust()
    return made


def _turn(program: Program, mode: str, row: Row, timer: Timer, settings: Mapping[str, Any]) -> float:
    """The median iteration of a turn, in microseconds; a long one has fewer iterations."""
    most = int(1e6 * _TURN_S / max(getattr(row, mode).median_us, 1.0))
    how: dict[str, Any] = {**settings, "check": False, "iterations": min(max(most, 1), settings["iterations"])}
    return measure.measure(program, row.count, timer=timer, **how).median_us


def judged(size: int, mode: str, pairs: Sequence[tuple[float, float]], risk: float) -> Difference:
    """Judges pairs of times of this program and of another one, in microseconds, by the signed-rank test.

    >>> judged(1024, "in_place", [(103, 100), (205, 201), (98, 99)] * 5, 0.01).outside_noise
    True
    >>> judged(1024, "in_place", [(103, 100), (201, 205)] * 8, 0.01).outside_noise
    False
    """
    logs = [math.log(max(now, 1e-6) / max(other, 1e-6)) for now, other in pairs]
    differing = sorted((log for log in logs if log), key=abs)
    positive = sum(rank for rank, log in enumerate(differing, 1) if log > 0)
    least = min(positive, len(differing) * (len(differing) + 1) // 2 - positive)
    ways = [1, *[0] * least]  # to draw ranks of each sum
    for rank in range(1, len(differing) + 1):
        ways = [number + (ways[total - rank] if total >= rank else 0) for total, number in enumerate(ways)]
    by_chance = 2.0 * sum(ways) / 2 ** len(differing)
    before = statistics.median(other for _, other in pairs)
    return Difference(size, mode, before, before * math.exp(statistics.median(logs)), by_chance < risk)


def plot(rows: Sequence[Row], earlier: Earlier | None, path: str, head: str) -> None:
    """Draws the median times to an SVG or PNG file, under `head`."""
    series: dict[str, list[tuple[int, float]]] = {}
    for mode, name in MODES.items():
        found = [(row.size, getattr(row, mode).median_us * 1e-6) for row in rows if getattr(row, mode) is not None]
        if found:
            series[name] = found
    svg.save(times.draw(series | (earlier.series() if earlier is not None else {}), head=head), path)
