"""The JSON form of a topology, as schema.json describes it. Reading a written topology gives the same topology."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, cast

from gc3 import errors
from gc3.support.files import parse_json, read_text
from gc3.support.schema import check, read_as, written
from gc3.topologies.model import Topology
from gc3.topologies.reach import joined

VERSION = 1
# A topology of 65,536 ranks on a fabric takes about 10 MB.
MAX_BYTES = 64 << 20
_PARTS = ("classes", "ranks", "resources", "links", "fabrics", "levels", "bounds")
_SPELLED = {"link_class": "class", "into": "in"}


@cache
def schema() -> dict[str, Any]:
    """Returns the JSON schema."""
    return json.loads((Path(__file__).parent / "schema.json").read_text(encoding="utf-8"))


def _inlined(part: Any) -> Any:
    """The schema with its definitions in place of references to them, which validates faster."""
    if isinstance(part, list):
        return [_inlined(item) for item in cast("list[Any]", part)]
    if not isinstance(part, dict):
        return part
    members = cast("dict[str, Any]", part)
    if "$ref" in members:
        return _inlined(schema()["$defs"][members["$ref"].rpartition("/")[2]])
    return {key: _inlined(value) for key, value in members.items()}


def to_data(topology: Topology) -> dict[str, Any]:
    """Returns the JSON form as plain data."""
    data: dict[str, Any] = {"gc3_topology": VERSION}
    data |= {key: getattr(topology, key) for key in ("name", "summary", "source")}
    data["parameters"] = dict(topology.parameters)
    shared = topology.processor
    data |= {} if shared is None else {"processor": shared}
    data |= {key: written(getattr(topology, key), _SPELLED) for key in _PARTS}
    for rank in data["ranks"] if shared is not None else ():
        del rank["processor"]
    for kind in data["classes"]:
        if not kind["multicast_efficiency"]:
            del kind["multicast_efficiency"]
    return data


def dumps(topology: Topology) -> str:
    """Returns the JSON form as text, one line for each part."""

    def value(item: Any, indent: str) -> str:
        if not isinstance(item, list) or not item:
            return json.dumps(item)
        parts = cast("list[Any]", item)
        lines = ",\n".join(f"{indent}  {json.dumps(part)}" for part in parts)
        return f"[\n{lines}\n{indent}]"

    members = ",\n".join(f"  {json.dumps(key)}: {value(item, '  ')}" for key, item in to_data(topology).items())
    return f"{{\n{members}\n}}\n"


def read(path: str) -> Topology:
    """Reads a topology from a JSON file.

    Raises:
        gc3.UserError: The file cannot be read, is not JSON, or is not a topology; says where.
    """
    return loads(read_text(path, "BadTopology", MAX_BYTES), file=path)


def loads(text: str, *, file: str = "") -> Topology:
    """Returns the topology of a JSON text; `file` is its name in errors."""
    return from_data(parse_json(text, "BadTopology", file), file=file)


def from_data(data: Any, *, file: str = "") -> Topology:
    """Returns the topology of a parsed JSON form; `file` is its name in errors."""
    check(data, _inlined(schema()), "BadTopology", file=file)
    try:
        return joined(_topology(data))
    except errors.UserError as defect:
        raise errors.error("BadTopology", defect.diagnostics[0].message, file=file, line=1 if file else 0) from None


def _topology(data: Any) -> Topology:
    shared = {"processor": data.get("processor", "")}
    given = {**data, "ranks": [shared | rank for rank in data["ranks"]]}
    return read_as(Topology, given | {"parameters": tuple(data.get("parameters", {}).items())}, _SPELLED)
