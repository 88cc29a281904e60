"""Execution traces of MLCommons Chakra: what each rank computes and communicates in a step, and what waits for what.

A file has the nodes of one rank: messages of et_def.proto (https://github.com/mlcommons/chakra, schema/protobuf), each
after its length as a varint, first the metadata. The fields that are needed here are described below by their numbers;
others are skipped. The collective is in the attribute comm_type, or else in the name of the node. Sizes are in the
attribute comm_size: the bytes that a rank gives to a collective. A barrier is read as an AllReduce of one element, as
PyTorch's ProcessGroupNCCL executes it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from gc3 import errors
from gc3.support import files, schema
from gc3.support.forms import looks_like

COLLECTIVES: Mapping[int, str] = {  # CollectiveCommType
    0: "allreduce",
    1: "reduce",
    2: "allgather",
    3: "gather",
    4: "scatter",
    5: "broadcast",
    6: "alltoall",
    7: "reducescatter",
    8: "reducescatter",
    9: "allreduce",  # BARRIER
}
BARRIER_BYTES = 4
_BARRIER = 9
COMPUTE, SEND, RECEIVE, COLLECTIVE = 4, 5, 6, 7  # NodeType; 0 to 3 and 8 on are metadata, memory and storage
_METADATA = 1
# The types of an attribute's value, in the order of their numbers.
_VALUES = (
    *("double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64"),
    *("fixed32", "fixed64", "sfixed32", "sfixed64", "bool", "string"),
)
_VERSION = "0.0.4"
_MOST_BYTES = 1 << 31
_MOST_NODES = 5_000_000


@dataclass(frozen=True, slots=True)
class Node:
    """A node of a trace."""

    number: int  # its id, unique in the trace of a rank
    name: str  # for people
    kind: int  # a NodeType of et_def.proto
    after: tuple[int, ...] = ()  # the numbers of the nodes that it waits for
    duration_s: float = 0.0  # seconds that it takes, of nodes that compute; 0 where the trace has none
    start_s: float = 0.0  # seconds at which it started when it was recorded; 0 where the trace has none
    on_cpu: bool = False  # whether the host executes it
    collective: str = ""  # the name of the collective; empty for other nodes
    size: int = 0  # bytes that a rank gives to the collective, or that are sent
    group: str = ""  # name of the ranks that take part; empty: all of them
    peer: int = 0  # the rank that is sent to, or received from
    tag: int = 0  # distinguishes messages between two ranks


Trace = tuple[Node, ...]


def read(path: str) -> Trace:
    """Returns the nodes of one rank, by rising number.

    Raises:
        gc3.UserError: The file cannot be read, is no trace, or names nodes that it does not have.
    """
    metadata, node = _messages()
    data = files.read_bytes(path, _MOST_BYTES)
    found: list[Node] = []
    try:
        at = 0
        for number, (begin, end) in enumerate(_lengths(data)):
            if number > _MOST_NODES:
                raise _bad(path, f"it has more than {_MOST_NODES} nodes")
            made = (metadata if number == 0 else node)()
            made.ParseFromString(data[begin:end])
            if number:
                found.append(_node(made, path))
            at = end
        if at == 0:
            raise _bad(path, "it is empty")
    except (ValueError, _protobuf("message").DecodeError) as problem:
        if isinstance(problem, errors.Gc3Error):
            raise
        raise _bad(path, f"{problem}") from None
    known = {n.number for n in found}
    if len(known) < len(found):
        raise _bad(path, "two nodes have one number")
    for n in found:
        if lost := [number for number in n.after if number not in known]:
            raise _bad(path, f"node {n.number} waits for node {lost[0]}, which does not exist")
    return tuple(sorted(found, key=lambda n: n.number))


def read_all(path: str, ranks: int) -> list[Trace]:
    """Returns the traces of all ranks: those of PATH.0.et, PATH.1.et and so on; or PATH.et, the same for every rank.

    Raises:
        gc3.UserError: There is no trace, there is one for fewer ranks, or one of them is invalid.
    """
    if path.endswith(".et"):
        return [read(path)] * ranks
    if path.endswith(".json"):
        try:
            told = looks_like(files.read_json(path, "BadTrace"))
        except errors.UserError:  # several documents, as Chakra's own converter writes them
            told = ""
        wanted = "traces in protobuf, FILE.et or NAME for NAME.0.et and so on"
        raise errors.error("BadTrace", f"'{path}' is JSON, and gc3 sim step reads {wanted}{told}")
    places = [Path(f"{path}.{rank}.et") for rank in range(ranks)]
    missing = [place for place in places if not place.is_file()]
    if missing:
        named = f"'{path}' does not end in .et, and " if Path(path).is_file() else ""
        raise errors.error("BadTrace", f"{named}there is no '{missing[0]}'; the machine has {ranks} ranks")
    if Path(f"{path}.{ranks}.et").is_file():
        raise errors.error("BadTrace", f"'{path}' has traces of more ranks than the machine, which has {ranks}")
    return [read(str(place)) for place in places]


def read_groups(path: str) -> dict[str, list[int]]:
    """Returns the ranks of groups: JSON of names with lists of ranks, as ASTRA-sim's --comm-group-configuration.

    Raises:
        gc3.UserError: The file cannot be read, or is something else.
    """
    data = files.read_json(path, "BadTrace")
    ranks = schema.array(schema.COUNT, minItems=1, uniqueItems=True)
    what = "an object of names with lists of different ranks"
    schema.check(data, {"type": "object", "additionalProperties": ranks}, "BadTrace", file=path, what=what)
    return {name: [int(rank) for rank in ranks] for name, ranks in data.items()}


def write(path: str, trace: Iterable[Node]) -> None:
    """Writes the nodes of one rank; times are rounded to microseconds, which is all that the format has."""
    metadata, node = _messages()
    names: dict[str, int] = {}
    for number, name in COLLECTIVES.items():
        names.setdefault(name, number)
    parts = [metadata(version=_VERSION)]
    for n in trace:
        made = node(
            id=n.number,
            name=n.name,
            type=n.kind,
            data_deps=n.after,
            start_time_micros=round(1e6 * n.start_s),
            duration_micros=round(1e6 * n.duration_s),
        )
        _attribute(made, "is_cpu_op", bool_val=n.on_cpu)
        if n.collective:
            _attribute(made, "comm_type", int64_val=names[n.collective])
        if n.kind in (SEND, RECEIVE, COLLECTIVE):
            _attribute(made, "comm_size", int64_val=n.size)
        if n.group:
            _attribute(made, "pg_name", string_val=n.group)
        if n.kind in (SEND, RECEIVE):
            _attribute(made, "comm_dst" if n.kind == SEND else "comm_src", int64_val=n.peer)
            _attribute(made, "comm_tag", int64_val=n.tag)
        parts.append(made)
    texts = [part.SerializeToString() for part in parts]
    files.write_bytes(path, b"".join(_varint(len(text)) + text for text in texts))


def write_all(path: str, traces: Sequence[Iterable[Node]]) -> None:
    """Writes PATH.0.et, PATH.1.et and so on."""
    for rank, trace in enumerate(traces):
        write(f"{path}.{rank}.et", trace)


def write_groups(path: str, groups: Mapping[str, Sequence[int]]) -> None:
    """Writes the ranks of groups as `read_groups` reads them."""
    files.write_text(path, json.dumps({name: list(ranks) for name, ranks in groups.items()}) + "\n")


def _node(made: Any, path: str) -> Node:
    attributes = {a.name: getattr(a, a.WhichOneof("value")) for a in made.attr if a.WhichOneof("value")}
    numbers = {name: attributes.get(name, 0) for name in ("comm_size", "comm_src", "comm_dst", "comm_tag")}
    wrong = [name for name, value in numbers.items() if not isinstance(value, int) or value < 0]
    peer = {SEND: "comm_dst", RECEIVE: "comm_src"}.get(made.type)
    wrong += [peer] if peer and peer not in attributes else []
    kind = attributes.get("comm_type", _named(made.name))
    if made.type == COLLECTIVE and kind == _BARRIER:
        numbers["comm_size"] = BARRIER_BYTES
    if made.type == COLLECTIVE and kind not in COLLECTIVES:
        raise _bad(path, f"node {made.id} '{errors.shown(made.name)}': comm_type {kind} is not known here")
    if wrong or (made.type in (SEND, RECEIVE, COLLECTIVE) and numbers["comm_size"] == 0):
        raise _bad(
            path, f"node {made.id} '{errors.shown(made.name)}': {(wrong or ['comm_size'])[0]} is missing or invalid"
        )
    return Node(
        made.id,
        made.name,
        made.type,
        tuple(sorted({*made.ctrl_deps, *made.data_deps})),
        0.0 if made.type == _METADATA else 1e-6 * made.duration_micros,
        1e-6 * made.start_time_micros,
        bool(attributes.get("is_cpu_op", False)),
        COLLECTIVES[cast("int", kind)] if made.type == COLLECTIVE else "",
        numbers["comm_size"],
        str(attributes.get("pg_name", "")),
        numbers[peer or "comm_src"],
        numbers["comm_tag"],
    )


def _named(name: str) -> int | None:
    """The collective in the name of a node, which traces of mlcommons have in place of comm_type."""
    plain = re.sub(r"[^a-z]", "", name.lower())
    spelled = {**COLLECTIVES, _BARRIER: "barrier"}
    found = [number for number, what in spelled.items() if what in plain]
    return max(found, key=lambda number: len(spelled[number]), default=None)


def _attribute(node: Any, name: str, **value: Any) -> None:
    node.attr.add(name=name, **value)


def _lengths(data: bytes) -> Iterable[tuple[int, int]]:
    """Where the messages begin and end."""
    at = 0
    while at < len(data):
        length = shift = 0
        while True:
            if at == len(data) or shift > 28:  # noqa: PLR2004  a length has 32 bits
                raise ValueError("it ends within a length")
            byte = data[at]
            at += 1
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:  # noqa: PLR2004  the last byte
                break
        if at + length > len(data):
            raise ValueError("it ends within a node")
        yield at, at + length
        at += length


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:  # noqa: PLR2004
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def _bad(path: str, what: str) -> errors.Gc3Error:
    return errors.error("BadTrace", f"'{path}' is not a Chakra execution trace: {what}")


def _protobuf(module: str) -> Any:
    return import_module(f"google.protobuf.{module}")  # it has no types for a checker


@cache
def _messages() -> tuple[Any, Any]:
    """The classes of the metadata and of a node, from the numbers and types of their fields."""
    kinds = _protobuf("descriptor_pb2").FieldDescriptorProto
    file = _protobuf("descriptor_pb2").FileDescriptorProto(
        name="gc3_chakra.proto", package="gc3_chakra", syntax="proto3"
    )
    string, unsigned, enum = kinds.TYPE_STRING, kinds.TYPE_UINT64, kinds.TYPE_INT32
    attribute = file.message_type.add(name="Attribute")
    attribute.oneof_decl.add(name="value")
    attribute.field.add(name="name", number=1, type=string, label=kinds.LABEL_OPTIONAL)
    for k, name in enumerate(_VALUES):  # between two of them is the list of such values
        kind = getattr(kinds, f"TYPE_{name.upper()}")
        attribute.field.add(name=f"{name}_val", number=3 + 2 * k, type=kind, label=kinds.LABEL_OPTIONAL, oneof_index=0)
    metadata = file.message_type.add(name="Metadata")
    metadata.field.add(name="version", number=1, type=string, label=kinds.LABEL_OPTIONAL)
    node = file.message_type.add(name="Node")
    for name, number, kind in (
        ("id", 1, unsigned),
        ("name", 2, string),
        ("type", 3, enum),  # an enumeration, whose numbers are on the wire like these
        ("start_time_micros", 6, unsigned),
        ("duration_micros", 7, unsigned),
    ):
        node.field.add(name=name, number=number, type=kind, label=kinds.LABEL_OPTIONAL)
    for name, number in (("ctrl_deps", 4), ("data_deps", 5)):
        node.field.add(name=name, number=number, type=unsigned, label=kinds.LABEL_REPEATED)
    attributes = {"type": kinds.TYPE_MESSAGE, "type_name": ".gc3_chakra.Attribute", "label": kinds.LABEL_REPEATED}
    node.field.add(name="attr", number=10, **attributes)
    pool = _protobuf("descriptor_pool").DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    made = _protobuf("message_factory").GetMessageClass
    return tuple(made(pool.FindMessageTypeByName(f"gc3_chakra.{name}")) for name in ("Metadata", "Node"))
