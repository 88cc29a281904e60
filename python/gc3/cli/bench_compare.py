"""--compare and --plot of gc3 bench."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import click

from gc3.cli import sizes
from gc3.report import svg, times
from gc3.support import files, schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gc3.runtime.measure import Measurement, Row

MODES = {"out_of_place": "out of place", "in_place": "in place"}
# Half the width of the notch of a box plot: the medians of two samples whose notches do not overlap differ with a
# confidence of about 95 % (McGill, Tukey, Larsen: Variations of Box Plots, 1978).
_NOTCH = 1.57
_TIMES = ("median_us", "quarter_us", "three_quarters_us")
_OR_NOT = {"type": ["object", "null"]}
_PROGRAM = {**schema.record(collective=schema.TEXT, ranks=schema.COUNT), **_OR_NOT}
_MODE = {**schema.record(**dict.fromkeys(_TIMES, schema.TIME)), **_OR_NOT}
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
    """One mode at one size, then and now.

    Attributes:
        size: S in bytes.
        mode: "out_of_place" or "in_place".
        before_us: The median iteration then.
        now_us: And now.
        outside_noise: Whether the medians differ by more than the iterations scatter.
    """

    size: int
    mode: str
    before_us: float
    now_us: float
    outside_noise: bool

    def __str__(self) -> str:
        """Describes it, as "3.0% slower at 1 MiB out of place, outside the noise (51.5 us, was 50 us)"."""
        where = f"at {sizes.format_size(self.size)} {MODES[self.mode]}"
        change = self.now_us / self.before_us - 1 if self.before_us else 0.0
        told = f"({self.now_us:.4g} us, was {self.before_us:.4g} us)"
        if not self.outside_noise:
            return f"{change:+.1%} {where}, within the noise {told}"
        return f"{abs(change):.1%} {'slower' if change > 0 else 'faster'} {where}, outside the noise {told}"


class Earlier:
    """What `gc3 bench --json` printed earlier."""

    def __init__(self, path: str) -> None:
        """Reads a file.

        Raises:
            gc3.UserError: It cannot be read, or is not such a file.
        """
        self.path = path
        data = files.read_json(path, "BadMeasurements")
        what = "what this version of `gc3 bench --json` prints"
        schema.check(data, _SCHEMA, "BadMeasurements", file=path, what=what)
        settings = data["settings"]
        self._iterations = int(settings["iterations"])
        self.about = self._what(data["programs"], settings)
        self.rows: dict[tuple[int, str], Mapping[str, float]] = {
            (row["size"], mode): {name: float(row[mode][name]) for name in _TIMES}
            for row in data["rows"]
            for mode in MODES
            if row[mode] is not None
        }

    @staticmethod
    def _what(programs: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
        info: Mapping[str, Any] = next(p for p in programs.values() if p is not None)
        found: dict[str, Any] = {key: info[key] for key in ("collective", "ranks")}
        return found | {key: settings[key] for key in ("engine", "dtype", "op")}

    def check(self, programs: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
        """Refuses to compare what is not alike.

        Raises:
            click.UsageError: With what differs.
        """
        now = self._what(programs, settings)
        other = [f"{key} {self.about[key]}, not {value}" for key, value in now.items() if self.about[key] != value]
        if other:
            raise click.UsageError(f"'{self.path}' cannot be compared: it has {', '.join(other)}")

    def differences(self, rows: Sequence[Row], iterations: int) -> Iterator[Difference]:
        """Yields what can be compared: the sizes and modes that both have."""
        for row in rows:
            for mode in MODES:
                measured: Measurement | None = getattr(row, mode)
                before = self.rows.get((row.size, mode))
                if measured is None or before is None:
                    continue
                now = asdict(measured)
                scatter = _notch(before, self._iterations) + _notch(now, iterations)
                outside = abs(now["median_us"] - before["median_us"]) > scatter
                yield Difference(row.size, mode, before["median_us"], now["median_us"], outside)

    def series(self) -> dict[str, list[tuple[int, float]]]:
        """Returns the median times in seconds by mode, for a chart."""
        found: dict[str, list[tuple[int, float]]] = {}
        for (size, mode), row in sorted(self.rows.items()):
            found.setdefault(f"{MODES[mode]}, {self.path}", []).append((size, row["median_us"] * 1e-6))
        return found


def _notch(row: Mapping[str, float], iterations: int) -> float:
    return _NOTCH * (row["three_quarters_us"] - row["quarter_us"]) / math.sqrt(max(iterations, 1))


def plot(rows: Sequence[Row], earlier: Earlier | None, path: str) -> None:
    """Draws the median times to an SVG or PNG file."""
    series: dict[str, list[tuple[int, float]]] = {}
    for mode, name in MODES.items():
        found = [(row.size, getattr(row, mode).median_us * 1e-6) for row in rows if getattr(row, mode) is not None]
        if found:
            series[name] = found
    svg.save(times.draw(series | (earlier.series() if earlier is not None else {})), path)
