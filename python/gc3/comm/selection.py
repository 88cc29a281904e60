"""The choice of the program for a call: a table of rows, of which the first that fits is used. See docs/selection.md.

>>> choice = Table.default().choose("allreduce", ranks=2, size=64, in_place=False)
>>> choice.row.spec.protocol
'LL'
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from gc3 import _core, collectives, errors
from gc3.comm import programs
from gc3.comm.spec import Spec
from gc3.datatypes import PROTOCOLS
from gc3.support import files

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

FORMAT = "gc3-selection-1"
PLACES = frozenset({"nodes", "ranks_per_node"})
TRANSPORTS = tuple(_core.transports())  # between hosts
_CALL = ("ranks", "root", *sorted(PLACES))
_FILE_KEYS = frozenset({"file", "slots", "slot_bytes", "thresholds", "memory"})
_COMPILED = frozenset({"algorithm", "parameters", "instances", "protocol", "threadblocks", "order"})
_SPEC_KEYS = _FILE_KEYS - {"file"} | _COMPILED
# Where the programs of a table were timed, and what the notes of its rows say about it.
ENGINES = {"processes": "", "threads": "ranks were threads", "sim": "predicted"}
_PAIR = 2
_CONDITION = re.compile("[0-9a-f]{64}")
_MOST_RANKS, _MOST_BYTES, _MOST_BLOCKS = 2**32 - 1, 2**63 - 1, 2**64  # the first also of slots, and instances


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table: the calls that it serves, and their program."""

    collective: str  # name of the collective
    limits: _core.Limits  # which calls of the collective it serves, by the keys of docs/selection.md
    spec: Spec
    note: str  # the reason for the row, and the machines that it was measured on
    source: str  # the file and position of the row, such as "default.json row 3"
    adapt: bool | None = None  # whether a better program is learned while calls run; None: as the communicator says
    condition: str = ""  # of a custom one, the digest of what it demands: see `gc3.collectives.condition`

    def data(self) -> dict[str, Any]:
        """Returns it as a table has it, without what holds for every call."""
        told = {key: getattr(self.limits, key) for key in LIMITS}
        limits = {key: value for key, value in told.items() if key in ALWAYS or value != getattr(_ANY, key)}
        return {
            "collective": self.collective,
            **({"condition": self.condition} if self.condition else {}),
            **limits,
            **({} if self.adapt is None else {"adapt": self.adapt}),
            "program": self.spec.data(),
            "note": self.note,
        }

    def limited(self, **limits: Any) -> Row:
        """Returns the row with other limits for some keys."""
        return replace(self, limits=_core.Limits(**{key: getattr(self.limits, key) for key in LIMITS} | limits))

    def core(self, recipe: _core.Recipe | None = None) -> _core.Row:
        """Returns it as the core has it, with this recipe of its program, or one of its own."""
        recipe = recipe or self.spec.recipe()
        return _core.Row(self.collective, self.limits, recipe, self.source, self.note, self.adapt, self.condition)


@dataclass(frozen=True, slots=True)
class Choice:
    """A chosen row, and why the earlier rows of the same collective were not."""

    row: Row
    passed_over: tuple[tuple[str, str], ...]  # source of each earlier row of the collective, and why it did not fit
    explanation: _core.Explanation  # the same with the call, for people


@dataclass(frozen=True, slots=True)
class Table:
    """Rows in the order in which they are tried."""

    rows: tuple[Row, ...]
    core: _core.Selection = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Hands the rows to the core, which chooses among them. Rows with the same program share its recipe."""
        # Apart from them for several hosts: the slots of the others suit one.
        recipes = {(row.spec, row.limits.nodes[0] > 1): row.spec.recipe() for row in self.rows}
        rows = [row.core(recipes[row.spec, row.limits.nodes[0] > 1]) for row in self.rows]
        object.__setattr__(self, "core", _core.Selection(rows))

    @staticmethod
    def default() -> Table:
        """Returns the default table of gc3, which serves every call of the built-in collectives."""
        return _default()

    @staticmethod
    def read(path: str | os.PathLike[str]) -> Table:
        """Reads a table and appends the rows of the default one.

        Raises:
            gc3.UserError: The file does not exist, or a row is invalid.
        """
        return Table(read_rows(path) + Table.default().rows)

    def choose(
        self,
        collective: str,
        *,
        ranks: int,
        size: int,
        in_place: bool,
        condition: str = "",
        **more: Any,
    ) -> Choice:
        """Returns the row for a call with S = `size` bytes; `more`: what else rows can limit.

        Without more, it is a call of equal blocks on one host. `ranks_per_node`: on each host; 0: not the same number
        on all. `transport` carries messages between the hosts; "": none of them.
        """
        more |= {"ranks": ranks, "size": size, "in_place": in_place}
        found = self.core.explain(collective, condition=condition, **more)
        return Choice(self.rows[found.number], tuple(found.passed_over), found)


@lru_cache(maxsize=1)
def _default() -> Table:
    return Table(_own("hosts.json") + _own("default.json"))


def _own(name: str) -> tuple[Row, ...]:
    try:
        text = (resources.files("gc3.comm") / name).read_text()
    except OSError as problem:
        raise errors.error("FileUnreadable", f"{name} of gc3: {problem.strerror}") from problem
    return parse(text, name)


def parse(text: str, name: str, folder: Path = Path()) -> tuple[Row, ...]:
    """Returns the rows of the file called `name`; the programs that it names are in `folder`.

    >>> parse('{"format": "gc3-selection-1", "rows": []}', "mine.json")
    ()
    """
    return _rows(files.parse_json(text, "BadTable", name), name, folder)


def read_rows(path: str | os.PathLike[str]) -> tuple[Row, ...]:
    """Returns the rows of a file.

    Raises:
        gc3.UserError: The file cannot be read, or a row is invalid.
    """
    return _rows(files.read_json(path, "BadTable"), Path(path).name, Path(path).absolute().parent)


def _rows(data: Any, name: str, folder: Path) -> tuple[Row, ...]:
    if not isinstance(data, dict) or cast("dict[str, Any]", data).get("format") != FORMAT:
        raise errors.error("BadTable", f'{name}: expected an object with "format": "{FORMAT}" and "rows"')
    rows = cast("dict[str, Any]", data).get("rows")
    if not isinstance(rows, list):
        raise errors.error("BadTable", f'{name}: "rows" must be a list')
    machines = _machines(cast("dict[str, Any]", data).get("measured_on", []), name)
    engine = cast("dict[str, Any]", data).get("engine", "processes")
    if not isinstance(engine, str) or engine not in ENGINES:
        raise errors.error("BadTable", f'{name}: "engine" is {engine!r}; expected one of {", ".join(ENGINES)}')
    return tuple(
        _row(row, f"{name} row {number}", machines, ENGINES[engine], folder)
        for number, row in enumerate(cast("list[Any]", rows), start=1)
    )


def _machines(value: Any, name: str) -> str:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in cast("list[Any]", value)):
        raise errors.error("BadTable", f'{name}: "measured_on" must be a list of names of machines')
    return "measured on " + "; ".join(cast("list[str]", value)) if value else ""


def _bad(where: str, why: str) -> errors.Gc3Error:
    return errors.error("BadTable", f"{where}: {why}")


def _object(value: Any, keys: frozenset[str], required: tuple[str, ...], where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _bad(where, "is not an object")
    found = cast("dict[str, Any]", value)
    for key in found:
        if key not in keys:
            raise _bad(where, f"there is no key '{key}'; expected one of {', '.join(sorted(keys))}")
    for key in required:
        if key not in found:
            raise _bad(where, f"'{key}' is missing")
    for key in {"algorithm", "note"} & found.keys():
        if not isinstance(found[key], str):
            raise _bad(where, f"{key} is {found[key]!r}, not a text")
    return found


def _number(value: Any, least: int, most: int, what: str, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise _bad(where, f"{what} is {value!r}, not a whole number from {least} to {most}")
    return value


def _pair(value: Any, least: int, most: int, what: str, where: str) -> tuple[int, int | None]:
    if not isinstance(value, list) or len(cast("list[Any]", value)) != _PAIR:
        raise _bad(where, f"{what} must be [first, last]; null as the last is no limit")
    first, last = cast("list[Any]", value)
    low = _number(first, least, most, what, where)
    return low, None if last is None else _number(last, low, most, what, where)


def _row(value: Any, where: str, machines: str, engine: str, folder: Path) -> Row:
    row = _object(value, _ROW_KEYS, ("collective", "program"), where)
    collective = _collective(row["collective"], where)
    condition = _condition(row["condition"], where) if "condition" in row else ""
    if (collective in collectives.BUILTIN) == bool(condition):
        known = f"one of {', '.join(collectives.BUILTIN)}, or another name and its 'condition'"
        raise _bad(where, f"there is no collective '{collective}'; expected {known}")
    limits = {key: _READERS[limit](row[key], key, where) for key, limit in LIMITS.items() if key in row}
    spec = parse_spec(row["program"], where, folder)
    if limits.get("transport"):
        limits.setdefault("nodes", (2, None))
        if limits["nodes"][0] == 1:
            raise _bad(where, "a row with a transport is for several hosts: 'nodes' must begin at 2 or more")
    if limits.get("ranks_per_node") is None and any(value in PLACES for _, value in spec.parameters):
        raise _bad(where, "a program whose parameters are nodes or ranks_per_node needs 'ranks_per_node' in its row")
    # A row that names no machine was measured on none, whatever holds for the others.
    measured = (_machines(row["measured_on"], where) or "not measured") if "measured_on" in row else machines
    note = "; ".join(filter(None, (row.get("note", ""), measured, engine)))
    adapt = _flag(row.get("adapt"), "adapt", where, "null: as the communicator says")
    return Row(collective, _core.Limits(**limits), spec, note, where, adapt, condition)


def _collective(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise _bad(where, f"collective is {value!r}, not a name")
    return value


def _condition(value: Any, where: str) -> str:
    if not isinstance(value, str) or not _CONDITION.fullmatch(value):
        raise _bad(where, f"condition is {value!r}, not the SHA-256 of a custom collective's condition")
    return value


def _transport(value: Any, key: str, where: str) -> str | None:
    if value is not None and value not in TRANSPORTS:
        raise _bad(where, f"{key} is {value!r}, not one of {', '.join(TRANSPORTS)}, or null for any")
    return value


def _flag(value: Any, key: str, where: str, null: str = "null for both") -> bool | None:
    if value is None or isinstance(value, bool):
        return value
    raise _bad(where, f"{key} must be true, false, or {null}")


def _skew(value: Any, key: str, where: str) -> tuple[float, float | None]:
    def valid(each: Any, least: float) -> bool:
        return isinstance(each, int | float) and not isinstance(each, bool) and least <= each <= _MOST_BLOCKS

    if isinstance(value, list) and len(pair := cast("list[Any]", value)) == _PAIR and valid(pair[0], 1):
        first, last = pair
        if last is None or (valid(last, first) and last > first):
            return float(first), None if last is None else float(last)
    raise _bad(where, f"{key} is {value!r}, not [first, end] with numbers from 1 on; null as the end is no limit")


# The keys by which a row says which calls it serves, each with its type in the core; and how each type is read.
LIMITS = dict(_core.row_keys())
_READERS: dict[str, Callable[[Any, str, str], Any]] = {
    "Counts": lambda value, key, where: _pair(value, 1, _MOST_RANKS, key, where),
    "Sizes": lambda value, key, where: _pair(value, 0, _MOST_BYTES, key, where),
    "Flag": _flag,
    "Number": lambda value, key, where: None if value is None else _number(value, 0, _MOST_RANKS, key, where),
    "CountsInBlocks": lambda value, key, where: None if value is None else _pair(value, 1, _MOST_RANKS, key, where),
    "Transport": _transport,
    "Skews": _skew,
}
_ROW_KEYS = frozenset(LIMITS) | {"collective", "condition", "adapt", "program", "note", "measured_on"}
_ANY = _core.Limits()
ALWAYS = frozenset({"ranks", "size", "in_place"})  # are written also where they limit nothing


def parse_spec(value: Any, where: str, folder: Path = Path()) -> Spec:
    """Returns the program of a row, as `Spec.data` has it; `where` it is, for errors."""
    if isinstance(value, dict) and "file" in value:
        return _of_file(cast("dict[str, Any]", value), where, folder)
    spec = _object(value, _SPEC_KEYS, ("algorithm",), f"{where} program")
    parameters = spec.get("parameters", {"R": "ranks"})
    if not isinstance(parameters, dict):
        raise _bad(where, "parameters must be an object")
    for name, given in cast("dict[str, Any]", parameters).items():
        if given not in _CALL:
            _number(given, 0, _MOST_BYTES, f"parameter {name}", where)
    protocol = spec.get("protocol", "Simple")
    if protocol not in PROTOCOLS:
        raise _bad(where, f"protocol must be one of {', '.join(PROTOCOLS)}")
    return Spec(
        spec["algorithm"],
        tuple(cast("dict[str, int | str]", parameters).items()),
        _number(spec.get("instances", 1), 1, _MOST_RANKS, "instances", where),
        protocol,
        *_fifos(spec, where),
        _thresholds(spec.get("thresholds", {}), where),
        _number(spec.get("threadblocks", 0), 0, _MOST_RANKS, "threadblocks", where),
        _ranks_in_order(spec.get("order", []), where),
        _memory(spec.get("memory", "fifo"), protocol, where),
    )


def _memory(value: Any, protocol: str, where: str) -> str:
    if value in (("fifo", "direct") if protocol == "Simple" else ("fifo",)):
        return value
    raise _bad(where, f"memory is {value!r}; expected 'fifo', or 'direct', which needs the protocol Simple")


def _ranks_in_order(value: Any, where: str) -> tuple[int, ...]:
    if isinstance(value, list) and {*map(str, given := cast("list[Any]", value))} == {*map(str, range(len(given)))}:
        return tuple(given)
    raise _bad(where, f"order is {value!r}, not a list of the ranks of a node, each from 0 on once")


def _of_file(value: dict[str, Any], where: str, folder: Path) -> Spec:
    spec = _object(value, _FILE_KEYS, ("file",), f"{where} program")
    file = spec["file"]
    if not isinstance(file, str) or not programs.is_place(file):
        raise _bad(where, f"file is {file!r}, not FOLDER/HASH.gc3 with a folder beside the table and a SHA-256")
    told = _thresholds(spec.get("thresholds", {}), where)
    memory = _memory(spec.get("memory", "fifo"), "Simple", where)
    return Spec(str(folder / file), (), 1, "Simple", *_fifos(spec, where), told, memory=memory)


def _fifos(spec: dict[str, Any], where: str) -> tuple[int, int]:
    """Slots, and bytes of a slot."""
    return (
        _number(spec.get("slots", 0), 0, _MOST_RANKS, "slots", where),
        _number(spec.get("slot_bytes", 0), 0, _MOST_BYTES, "slot_bytes", where),
    )


def _thresholds(value: Any, where: str) -> tuple[tuple[str, int | None], ...]:
    if not isinstance(value, dict):
        raise _bad(where, "thresholds must be an object")
    found = tuple(cast("dict[str, int | None]", value).items())
    for name, given in found:
        if given is not None:
            _number(given, 0, _MOST_BYTES, f"threshold {name}", where)
        if why := _core.check_threshold(name, given):
            raise _bad(where, why)
    return found
