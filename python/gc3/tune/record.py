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
from gc3.comm.selection import Spec
from gc3.runtime.measure import machine
from gc3.support import files, schema
from gc3.tune.search import Measured, Own

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
        new = self.path.with_name(f"{self.path.name}.new")
        try:
            new.write_text(f'{{"format": "{FORMAT}", "machine": {json.dumps(self._here)}, "points": [\n{lines}\n]}}\n')
            os.replace(new, self.path)
        except OSError as problem:
            raise errors.error("FileUnwritable", f"'{self.path}': {problem.strerror}") from problem

    def _read(self) -> None:
        if not os.path.lexists(self.path):
            return
        text = files.read_text(self.path, "BadTable")
        try:
            data = files.parse_json(text, "BadTable")
            schema.check(data, _SCHEMA, "BadTable")
            there, points = data["machine"], tuple(_point(point) for point in data["points"])
        except (ValueError, LookupError, TypeError, OverflowError) as problem:  # a JSON error is a ValueError
            told = f"'{self.path}' is not a record of gc3 tune: remove it, or repeat all measurements with --fresh"
            raise errors.error("BadTable", told) from problem
        changed = [f"{key} {there.get(key)}" for key, value in self._here.items() if there.get(key) != value]
        if changed:
            self.outdated = ", ".join(changed)
        else:
            self.points = points


_POSITIVE = {**schema.COUNT, "minimum": 1}


def _pairs(second: dict[str, Any]) -> dict[str, Any]:
    return schema.array({"prefixItems": [schema.TEXT, second], **schema.array(False, minItems=2)})


_SPEC = schema.record(
    {
        "thresholds": _pairs({**schema.COUNT, "type": ["integer", "null"]}),
        "threadblocks": schema.COUNT,
        "order": schema.array(schema.COUNT),
        "memory": {"enum": ["fifo", "direct"]},
    },
    algorithm=schema.TEXT,
    parameters=_pairs({**schema.COUNT, "type": ["integer", "string"]}),
    instances=_POSITIVE,
    protocol=schema.TEXT,
    slots=schema.COUNT,
    slot_bytes=schema.COUNT,
)
_TIMES = schema.array({"prefixItems": [_SPEC, schema.TIME], **schema.array(False, minItems=2)})
_SCHEMA = schema.record(
    format={"const": FORMAT},
    machine={"type": "object", "additionalProperties": {"type": ["string", "integer"]}},
    points=schema.array(
        schema.record(
            {
                "brief": {"type": "boolean"},
                "own": schema.array(schema.record(spec=schema.TEXT, collective=schema.TEXT, version=schema.TEXT)),
                "skew": schema.TIME,
                "intervals_us": schema.array(
                    {"anyOf": [schema.array(schema.TIME, minItems=2, maxItems=2), {"type": "null"}]}
                ),
                "registered_us": _TIMES,
                "within": {**schema.TIME, "type": ["number", "null"]},
            },
            collective=schema.TEXT,
            ranks={**_POSITIVE, "maximum": 2**32 - 1},
            size={**schema.COUNT, "maximum": 2**62},
            in_place={"type": "boolean"},
            times_us=_TIMES,
            default={"anyOf": [_SPEC, {"type": "null"}]},
            tried=schema.COUNT,
        )
    ),
)


def _point(data: Any) -> Measured:
    times = tuple((_spec(spec), float(took)) for spec, took in data["times_us"])
    default = None if data["default"] is None else _spec(data["default"])
    place = data["collective"], int(data["ranks"]), int(data["size"]), data["in_place"]
    if default is not None and default not in dict(times):
        raise ValueError(place)
    own = tuple(Own(o["spec"], o["collective"], o["version"]) for o in data.get("own", ()))
    return Measured(
        *place,
        times,
        default,
        int(data["tried"]),
        data.get("brief", False),
        own,
        None,
        float(data.get("skew", 1)),
        tuple(None if each is None else (float(each[0]), float(each[1])) for each in data.get("intervals_us", ())),
        None if data.get("within") is None else float(data["within"]),
        tuple((_spec(spec), float(took)) for spec, took in data.get("registered_us", ())),
    )


def _spec(data: Any) -> Spec:
    parameters = tuple((name, value) for name, value in data["parameters"])
    fifos = int(data["slots"]), int(data["slot_bytes"])
    told = tuple((name, None if value is None else int(value)) for name, value in data.get("thresholds", ()))
    most, order = int(data.get("threadblocks", 0)), tuple(int(rank) for rank in data.get("order", ()))
    program = data["algorithm"], parameters, int(data["instances"]), data["protocol"]
    return Spec(*program, *fifos, told, most, order, memory=data.get("memory", "fifo"))
