"""Logs of nccl-tests: measured times as a baseline.

The table is found by its heading, so all versions can be read: with #wrong or error, with or without in-place columns,
in any units that the heading gives. Prefixes of mpirun or srun are removed, and other output between the lines is
skipped, unless it begins with a number.

The columns also show the collective: S against the elements, the reduction, the root, and busbw against algbw. What the
log says, and what it is compared with, must agree with them.
"""

from __future__ import annotations

import bisect
import math
import re
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from gc3 import collectives, errors
from gc3.sim.sweep import Cell
from gc3.support import files

if TYPE_CHECKING:
    from gc3 import _core

_MOST_BYTES = 16 << 20
_MOST_SIZE = 1 << 60
_SHORTEST = 1e-12  # seconds
_SHOWN = 40  # characters of what is wrong
_TAG = re.compile(r"^(?:\[[\d,]+\]\s*<std(?:out|err)>:\s?|\d+:\s+(?=#|\d))")
_TIMES = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_RATES = {"GB/s": 1.0, "MB/s": 1e-3}
TESTS = {
    "all_reduce_perf": "allreduce",
    "all_gather_perf": "allgather",
    "reduce_scatter_perf": "reducescatter",
    "alltoall_perf": "alltoall",
    "broadcast_perf": "broadcast",
    "reduce_perf": "reduce",
    "gather_perf": "gather",
    "scatter_perf": "scatter",
}
_ITEMSIZES = {
    **dict.fromkeys(("int8", "uint8", "fp8_e4m3", "fp8_e5m2", "f8e4m3", "f8e5m2"), 1),
    **dict.fromkeys(("half", "bfloat16"), 2),
    **dict.fromkeys(("int32", "uint32", "float"), 4),
    **dict.fromkeys(("int64", "uint64", "double"), 8),
}
_REDUCTIONS = ("sum", "prod", "min", "max", "avg", "mulsum")
_HALVES = ("out of place", "in place")
_MISPRINT = 0.1  # algbw may differ so much from size / time, besides what two decimals leave open
_ROUNDED = 0.01  # two decimals, in GB/s; also the part that few digits leave open


@dataclass(frozen=True, slots=True)
class Timing:
    """The values of a log for a size in one of the two modes."""

    time_s: float  # seconds
    algbw: float  # GB/s
    busbw: float  # GB/s
    wrong: int | None  # wrong elements; None if the log does not say


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table."""

    size: int  # S in bytes
    count: int  # elements
    dtype: str  # as nccl-tests spells it; empty where the log does not say
    redop: str  # the same for the reduction
    root: int | None  # the root; -1 where there is none, None where the log does not say
    out_of_place: Timing | None  # the times of calls whose buffers do not overlap
    in_place: Timing | None  # those of calls in place; None where they were not measured
    line: int = field(default=0, compare=False)  # its line in the log

    @property
    def blocks(self) -> int:
        """S in blocks of the elements that the row states; 0 where it does not say."""
        block = self.count * _ITEMSIZES.get(self.dtype, 0)
        return self.size // block if block and self.size % block == 0 else 0

    def may_be(self, name: str, ranks: int) -> bool:
        """Returns whether its columns can be those of a collective; `ranks` is 0 where they are not known."""
        kind = collectives.get(name)
        of_two = collectives.size_blocks(kind.model(2))
        if self.redop in (*_REDUCTIONS, "none") and (self.redop != "none") != kind.reduces:
            return False
        if self.root is not None and (self.root >= 0) != kind.rooted:
            return False
        if self.count and self.dtype in _ITEMSIZES and self.size:
            if of_two == 1 and self.blocks != 1:
                return False
            if of_two > 1 and (self.blocks != ranks if ranks else self.blocks <= 1):
                return False
        least, most = (kind.factor(ranks),) * 2 if ranks else sorted((kind.factor(2), kind.factor(1 << 20)))
        for timing in (self.out_of_place, self.in_place):
            if timing is not None and timing.algbw and timing.busbw:
                low, high = (f * timing.algbw - (1 + f) * _ROUNDED / 2 for f in (least, most))
                if not low * (1 - _ROUNDED) <= timing.busbw <= (high + (1 + most) * _ROUNDED) * (1 + _ROUNDED):
                    return False
        return True

    def described(self) -> str:
        """Says what its columns show of the collective."""
        told = [f"{self.size} bytes are {self.blocks or 'no whole number of'} times {self.count} {self.dtype}"]
        told = told if self.count and self.dtype in _ITEMSIZES else []
        told += [f"redop is {self.redop}"] if self.redop else []
        told += [f"root is {self.root}"] if self.root is not None else []
        for timing in (self.out_of_place or self.in_place,):
            told += [f"busbw is {timing.busbw / timing.algbw:.2f} times algbw"] if timing and timing.algbw else []
        return ", ".join(told)


@dataclass(frozen=True, slots=True)
class Log:
    """A log of nccl-tests.

    Attributes:
        path: Where it was read.
        rows: By size.
        collective: What was measured, where the log says it.
        ranks: GPUs that took part; 0 where the log does not say.
        nccl: The version of NCCL, where the log says it.
    """

    path: str
    rows: tuple[Row, ...]
    collective: str
    ranks: int
    nccl: str

    @property
    def label(self) -> str:
        """Its name in tables."""
        return f"{Path(self.path).name} (measured)"

    def time_s(self, size: int, *, in_place: bool) -> float | None:
        """Returns the seconds of a call; between measured sizes by linear interpolation of logarithms.

        Returns None outside the measured sizes. A log without times for the mode gives those of the other.
        """
        points = [
            (row.size, timing.time_s)
            for row in self.rows
            if (timing := (row.in_place or row.out_of_place) if in_place else (row.out_of_place or row.in_place))
        ]
        sizes = [point[0] for point in points]
        at = bisect.bisect_left(sizes, size)
        if at < len(sizes) and sizes[at] == size:
            return points[at][1]
        if at in (0, len(sizes)) or sizes[at - 1] == 0:
            return None
        (s0, t0), (s1, t1) = points[at - 1 : at + 1]
        part = math.log(size / s0) / math.log(s1 / s0)
        return t0 * (t1 / t0) ** part

    def check(self, model: _core.Collective) -> None:
        """Raises an error if by its text or its columns the log is of another collective or number of ranks."""
        if self.collective and self.collective != model.name:
            raise _bad(self.path, None, f"it is a log of {self.collective}, and the programs are {model.name}")
        if self.ranks and self.ranks != model.ranks:
            raise _bad(self.path, None, f"it is a log of {self.ranks} GPUs, and the programs have {model.ranks} ranks")
        for row in self.rows:
            possible = [name for name in TESTS.values() if row.may_be(name, model.ranks)]
            if model.name not in possible and (possible or model.name in TESTS.values()):
                found = f"those of {' or '.join(possible)}" if possible else "of no collective that nccl-tests has"
                told = f"the columns are {found} of {model.ranks} GPUs: {row.described()}"
                raise _bad(self.path, row.line, f"the programs are {model.name}, and {told}")

    def cell(self, size: int, model: _core.Collective, *, in_place: bool) -> Cell | None:
        """Returns the cell of a table; None if nothing was measured."""
        time = self.time_s(size, in_place=in_place)
        if time is None:
            return None
        algbw = size / time / 1e9
        how = "measured" if any(row.size == size for row in self.rows) else "between measured sizes"
        return Cell(self.label, size, time, algbw, algbw * collectives.factor(model), 0.0, "", how, 1.0)


def read(path: str) -> Log:
    """Returns the log in a file.

    Raises:
        gc3.UserError: The file cannot be read, is not such a log, or has an invalid line.
    """
    data = files.read_bytes(path, _MOST_BYTES)
    return parse(data.decode("utf-8", errors="replace"), path)


def parse(text: str, path: str = "log") -> Log:
    """Parses the text of a log; `path` is for messages.

    >>> log = parse('''#       size  count  type  time  algbw  busbw #wrong
    ... #        (B)  (elements)     (us)  (GB/s) (GB/s)
    ...         1024    256 float    17.3    0.06   0.10      0''')
    >>> log.rows[0].out_of_place.time_s
    1.73e-05
    """
    lines = [_TAG.sub("", line).strip() for line in text.splitlines()]
    rows: list[Row] = []
    columns: list[tuple[str, int, float]] | None = None
    collective, nccl, ranks = "", "", 0
    for number, line in enumerate(lines, start=1):
        if line.startswith("#"):
            columns = _heading(line, lines[number : number + 2]) or columns
            ranks += bool(re.match(r"#\s*Rank\s+\d+\s+(?:Group\s+\d+\s+)?Pid\b", line))
        elif columns and re.match(r"[-+]?\.?\d", line):
            if re.match(r"\d+\s", line) is None:
                raise _bad(path, number, f"'{line}' does not begin with a size in bytes")
            rows.append(_row(path, number, line, columns))
        test = re.search(r"\b(\w+_perf)\b", line)
        collective = collective or (TESTS.get(test[1], "") if test else "")
        version = re.search(r"NCCL version (\d[\w.+-]*)|nccl-library version[: ]+(\d[\w.+-]*)", line, re.IGNORECASE)
        nccl = nccl or (version[1] or version[2] if version else "")
    if columns is None:
        raise _bad(path, None, "it has no line with the columns size, time, algbw and busbw")
    if not rows:
        raise _bad(path, None, "its table has no rows")
    rows.sort(key=lambda row: row.size)
    for before, after in pairwise(rows):
        if before.size == after.size and (before.dtype, before.redop) != (after.dtype, after.redop):
            raise _bad(
                path, None, f"{after.size} bytes were measured for several types or reductions: give one of them"
            )
    rows = list({row.size: row for row in rows}.values())
    ranks = ranks or max((row.blocks for row in rows if row.blocks > 1), default=0)
    for row in rows:
        if collective and not row.may_be(collective, ranks):
            of = f"{collective} of {ranks} GPUs" if ranks else collective
            raise _bad(path, row.line, f"it is a log of {of}, which these columns cannot be: {row.described()}")
    possible = [name for name in TESTS.values() if all(row.may_be(name, ranks) for row in rows)]
    return Log(path, tuple(rows), collective or (possible[0] if len(possible) == 1 else ""), ranks, nccl)


def _heading(line: str, following: list[str]) -> list[tuple[str, int, float]] | None:
    """Name, half (0 is out of place) and unit of every column, if the line is the heading of the table."""
    names = line.lstrip("# \t").split()
    if "size" not in names or "time" not in names or "busbw" not in names:
        return None
    below = next((f for f in following if f.startswith("#") and "(" in f), "")
    units: list[str] = re.findall(r"\(([^)]*)\)", below)
    found: list[tuple[str, int, float]] = []
    seen: dict[str, int] = {}
    for name in ("wrong" if n in ("#wrong", "error") else n for n in names):
        half = seen.get(name, 0)
        seen[name] = half + 1
        found.append((name, half, 1.0))
    # Only some columns have units, and these in order: (B) (elements) (us) (GB/s) (GB/s) (us) ...
    with_units = [i for i, (name, _, _) in enumerate(found) if name in ("size", "count", "time", "algbw", "busbw")]
    default = {"time": 1e-6}
    for i, unit in zip(with_units, [*units, *[""] * len(found)], strict=False):
        name, half, _ = found[i]
        scale = {"time": _TIMES, "algbw": _RATES, "busbw": _RATES}.get(name, {}).get(unit)
        found[i] = (name, half, scale if scale is not None else default.get(name, 1.0))
    return found


def _row(path: str, number: int, line: str, columns: list[tuple[str, int, float]]) -> Row:
    fields = line.split()
    if len(fields) != len(columns):
        wanted = " ".join(name for name, _, _ in columns)
        raise _bad(path, number, f"'{line}' has {len(fields)} columns, and the heading has {len(columns)}: {wanted}")
    texts = {(name, half): field for (name, half, _), field in zip(columns, fields, strict=True)}
    scales = {(name, half): scale for name, half, scale in columns}

    def value(name: str, half: int) -> float | None:
        text = texts.get((name, half), "N/A")
        if text == "N/A":
            return None
        try:
            found = float(text.replace("_", "x"))  # Python reads 1_0 as 10
        except ValueError:
            raise _bad(path, number, f"{name} is '{text[:_SHOWN]}', which is not a number") from None
        if not math.isfinite(found) or found < 0:
            raise _bad(path, number, f"{name} is {text}")
        return found * scales[name, half]

    size = _whole(fields[0])
    if size is None or size > _MOST_SIZE:
        raise _bad(path, number, f"'{fields[0][:_SHOWN]}' is no size in bytes")
    timings: list[Timing | None] = []
    for half in range(2):
        time, algbw, busbw = (value(name, half) for name in ("time", "algbw", "busbw"))
        if time is None:
            timings.append(None)
            continue
        if time < _SHORTEST:
            raise _bad(path, number, f"the time {_HALVES[half]} is {'0' if time == 0 else 'below a picosecond'}")
        expected = size / time / 1e9
        if algbw is not None and abs(algbw - expected) > 0.01 + _MISPRINT * expected:
            raise _bad(
                path, number, f"{size} bytes in {time * 1e6:g} us are {expected:.2f} GB/s, and algbw is {algbw:g}"
            )
        wrong = texts.get(("wrong", half), "N/A")
        timings.append(Timing(time, algbw or 0.0, busbw or 0.0, _whole(wrong)))
    if timings == [None, None]:
        raise _bad(path, number, "there is no time")
    count, root = value("count", 0), texts.get(("root", 0), "")
    return Row(
        size,
        int(count or 0),
        texts.get(("type", 0), ""),
        texts.get(("redop", 0), ""),
        -1 if root == "-1" else _whole(root),
        timings[0],
        timings[1],
        number,
    )


def _whole(text: str) -> int | None:
    """Returns a whole number of at most 18 digits."""
    return int(text) if re.fullmatch(r"[0-9]{1,18}", text) else None


def _bad(path: str, line: int | None, message: str) -> errors.Gc3Error:
    if line is None:
        return errors.error("BadMeasurements", f"'{path}': {message}")
    return errors.error("BadMeasurements", message, file=path, line=line)
