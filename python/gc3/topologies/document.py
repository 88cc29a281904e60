"""The JSON form of a topology, as schema.json describes it. Reading a written topology gives the same topology."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, cast

from gc3 import errors
from gc3.support.files import parse_json, read_text
from gc3.support.schema import check
from gc3.topologies.model import Topology
from gc3.topologies.parts import Bound, Fabric, Level, Link, LinkClass, Port, Rank, Resource

VERSION = 1
# A topology of 65,536 ranks on a fabric takes about 10 MB.
MAX_BYTES = 64 << 20


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
    shared = topology.processor
    return {
        "gc3_topology": VERSION,
        "name": topology.name,
        "summary": topology.summary,
        "source": topology.source,
        "parameters": dict(topology.parameters),
        **({} if shared is None else {"processor": shared}),
        "classes": [
            {
                "name": c.name,
                "bandwidth_bytes_per_s": c.bandwidth_bytes_per_s,
                "latency_s": c.latency_s,
                "kernel_efficiency": c.kernel_efficiency,
                "dma_efficiency": c.dma_efficiency,
                "message_s": c.message_s,
                **({"multicast_efficiency": c.multicast_efficiency} if c.multicast_efficiency else {}),
                "source": c.source,
            }
            for c in topology.classes
        ],
        "ranks": [
            {
                "name": r.name,
                "node": r.node,
                "socket": r.socket,
                "kind": r.kind,
                "position": None if r.position is None else list(r.position),
                **({"processor": r.processor} if shared is None else {}),
            }
            for r in topology.ranks
        ],
        "resources": [
            {"name": r.name, "kind": r.kind, "class": r.link_class, "lanes": r.lanes} for r in topology.resources
        ],
        "links": [
            {"src": k.src, "dst": k.dst, "class": k.link_class, "lanes": k.lanes, "via": list(k.via)}
            for k in topology.links
        ],
        "fabrics": [
            {
                "name": f.name,
                "class": f.link_class,
                "across_nodes": f.across_nodes,
                "ports": [{"rank": p.rank, "out": list(p.out), "in": list(p.into)} for p in f.ports],
            }
            for f in topology.fabrics
        ],
        "levels": [{"name": v.name, "groups": list(v.groups)} for v in topology.levels],
        "bounds": None
        if topology.bounds is None
        else [{"pairs": [list(pair) for pair in b.pairs], "chunks": b.chunks} for b in topology.bounds],
    }


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
        return _topology(data)
    except errors.UserError as defect:
        raise errors.error("BadTopology", defect.diagnostics[0].message, file=file, line=1 if file else 0) from None


def _topology(data: Any) -> Topology:
    bounds = data.get("bounds")
    return Topology(
        name=data["name"],
        ranks=tuple(_rank(r, data.get("processor", "")) for r in data["ranks"]),
        classes=tuple(_class(c) for c in data["classes"]),
        resources=tuple(
            Resource(r["name"], r["kind"], r["class"], int(r.get("lanes", 1))) for r in data.get("resources", ())
        ),
        links=tuple(
            Link(int(k["src"]), int(k["dst"]), k["class"], int(k.get("lanes", 1)), tuple(k.get("via", ())))
            for k in data.get("links", ())
        ),
        fabrics=tuple(_fabric(f) for f in data.get("fabrics", ())),
        levels=tuple(Level(v["name"], tuple(int(g) for g in v["groups"])) for v in data.get("levels", ())),
        bounds=None
        if bounds is None
        else tuple(Bound(tuple((int(s), int(d)) for s, d in b["pairs"]), int(b["chunks"])) for b in bounds),
        parameters=tuple((name, int(value)) for name, value in data.get("parameters", {}).items()),
        summary=data.get("summary", ""),
        source=data.get("source", ""),
    )


def _rank(data: Any, processor: str) -> Rank:
    position = data.get("position")
    return Rank(
        data["name"],
        int(data.get("node", 0)),
        int(data.get("socket", 0)),
        data.get("kind", "gpu"),
        None if position is None else (position[0], position[1]),
        data.get("processor", processor),
    )


def _class(data: Any) -> LinkClass:
    return LinkClass(
        data["name"],
        data["bandwidth_bytes_per_s"],
        data.get("latency_s"),
        data.get("kernel_efficiency", 1.0),
        data.get("dma_efficiency", 1.0),
        data.get("message_s", 0.0),
        data.get("multicast_efficiency", 0.0),
        data.get("source", ""),
    )


def _fabric(data: Any) -> Fabric:
    ports = tuple(Port(int(p["rank"]), tuple(p.get("out", ())), tuple(p.get("in", ()))) for p in data["ports"])
    return Fabric(data["name"], data["class"], ports, data.get("across_nodes", False))
