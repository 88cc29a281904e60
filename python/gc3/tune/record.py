"""The measurements for a table, kept in a file beside it, so that `gc3 tune` continues where it stopped.

They count only for the same engine, on the same machine and with the same version of gc3.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gc3 import _core, errors
from gc3.collectives import BUILTIN
from gc3.comm.selection import parse_spec
from gc3.runtime.measure import machine
from gc3.support import files, schema
from gc3.tune.goal import Measured

FORMAT = "gc3-tuning-1"
SUFFIX = ".points"


class Record:
    """The points that have been measured for one table, by this run and earlier ones.

    Attributes:
        path: The file; it is rewritten as a whole with every point.
        points: The measurements of earlier runs.
        outdated: Why points of earlier runs do not count; None if they do, or there are none.
    """

    def __init__(self, table: str, *, fresh: bool, engine: str = "processes", hosts: str = "") -> None:
        """Reads the record of the table in the file `table`, unless `fresh` is set; `engine`: the one it is for.

        `hosts`: The hosts that programs are timed on, if there are several.

        Raises:
            gc3.UserError: The file exists and is not a record.
        """
        self.path = Path(f"{table}{SUFFIX}")
        on = {"hosts": hosts} if hosts else {}
        self._here = {"gc3": _core.VERSION, "engine": engine, **on, **machine()}
        self.points: tuple[Measured, ...] = ()
        self.outdated: str | None = None
        if not fresh:
            self._read()

    def write(self, points: Iterable[Measured]) -> None:
        """Replaces the stored points atomically: readers find the old file or the new one.

        Raises:
            gc3.UserError: The file cannot be written.
        """
        lines = ",\n".join(f"  {json.dumps(asdict(point))}" for point in points)
        text = f'{{"format": "{FORMAT}", "machine": {json.dumps(self._here)}, "points": [\n{lines}\n]}}\n'
        files.replace_text(str(self.path), text)

    def _read(self) -> None:
        if not os.path.lexists(self.path):
            return
        text = files.read_text(self.path, "BadTable")
        try:
            data = files.parse_json(text, "BadTable")
            schema.check(data, _SCHEMA, "BadTable")
            there = data["machine"]
            changed = [f"{key} {there.get(key)}" for key, value in self._here.items() if there.get(key) != value]
            self.points = () if changed else tuple(_point(point) for point in data["points"])
        except (ValueError, LookupError, TypeError, OverflowError) as problem:  # a JSON error is a ValueError
            told = f"'{self.path}' is not a record of gc3 tune: remove it, or repeat all measurements with --fresh"
            raise errors.error("BadTable", told) from problem
        self.outdated = ", ".join(changed) or None


_POSITIVE = {**schema.COUNT, "minimum": 1}
_SPECIAL = {
    "instances": _POSITIVE,
    "ranks": {**schema.COUNT, "maximum": 2**32 - 1},  # of an own program 0: any number
    "size": {**schema.COUNT, "maximum": 2**62},
    "skew": {**schema.TIME, "minimum": 1},
}
_SCHEMA = schema.record(
    format={"const": FORMAT},
    machine={"type": "object", "additionalProperties": {"type": ["string", "integer"]}},
    points=schema.array(schema.of(Measured, _SPECIAL)),
)


def _point(data: Any) -> Measured:
    point: Measured = schema.read_as(Measured, data, {})
    times = *point.times_us, *point.registered_us
    whole = (
        point.times_us and len(point.intervals_us) in (0, len(point.times_us)) and all(took > 0 for _, took in times)
    )
    if not (whole and point.ranks and (point.collective in BUILTIN) == (not point.condition)):
        raise ValueError(point.place)
    if point.default is not None and point.default not in dict(point.times_us):
        raise ValueError(point.place)
    for spec, _ in (*data["times_us"], *data.get("registered_us", ())):  # as a table has it, where pairs are members
        parse_spec({**spec, **{name: dict(spec.get(name, ())) for name in ("parameters", "thresholds")}}, "program")
    return point
