"""Checks the parts of a topology against each other, which its JSON schema cannot do.

A defect's place is a path into the JSON form, so that the same message serves a file and a program.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

from gc3.topologies.parts import Parts

Defect = tuple[str, str]


def first_defect(topology: Parts) -> Defect | None:
    """Returns the place and the description of the first defect of `topology`, or None."""
    return next(_defects(topology), None)


def _defects(topology: Parts) -> Iterator[Defect]:
    if not topology.ranks:
        yield "$.ranks", "it is empty; expected at least one rank"
    nodes = {rank.node for rank in topology.ranks}
    if nodes and nodes != set(range(len(nodes))):
        yield "$.ranks", f"the nodes are {sorted(nodes)[:8]}; expected numbers from 0 without gaps"
    yield from _level_defects(topology, len(nodes))
    yield from _class_defects(topology)
    for what, items in (
        ("classes", topology.classes),
        ("resources", topology.resources),
        ("fabrics", topology.fabrics),
    ):
        yield from _repeated(what, [item.name for item in items])
    classes = {c.name for c in topology.classes}
    for what, things in (("resources", topology.resources), ("links", topology.links), ("fabrics", topology.fabrics)):
        things: Iterable[Any]
        for i, thing in enumerate(things):
            if thing.link_class not in classes:
                yield f"$.{what}[{i}].class", f"there is no class '{thing.link_class}'"
    yield from _link_defects(topology)
    yield from _fabric_defects(topology)
    yield from _bound_defects(topology)


def _level_defects(topology: Parts, nodes: int) -> Iterator[Defect]:
    """Levels must be nested: the nodes of a group are together on all later levels."""
    yield from _repeated("levels", [level.name for level in topology.levels])
    name, inner = "node", tuple(range(nodes))
    for i, level in enumerate(topology.levels):
        place, groups = f"$.levels[{i}].groups", level.groups
        if level.name in ("node", "rank"):
            yield f"$.levels[{i}].name", f"'{level.name}'; expected another name, since every machine has {level.name}s"
        if len(groups) != nodes:
            yield place, f"it has {len(groups)} numbers; expected the group of each of {nodes} nodes"
            return
        if set(groups) != set(range(len(set(groups)))):
            yield place, f"the groups are {sorted(set(groups))[:8]}; expected numbers from 0 without gaps"
        first: dict[int, int] = {}  # of each group of the level before, its first node
        for node, group in enumerate(inner):
            other = first.setdefault(group, node)
            if groups[other] != groups[node]:
                yield (
                    place,
                    f"nodes {other} and {node} are in {name} {group}, but in {level.name}s {groups[other]} and "
                    f"{groups[node]}; expected each {name} in one {level.name}",
                )
                return
        name, inner = level.name, groups


def _class_defects(topology: Parts) -> Iterator[Defect]:
    for i, c in enumerate(topology.classes):
        place = f"$.classes[{i}]"
        bandwidth = c.bandwidth_bytes_per_s
        if bandwidth is not None and not 0 < bandwidth < math.inf:
            yield (
                f"{place}.bandwidth_bytes_per_s",
                f"{bandwidth}; expected a number above 0, or null if it is not known",
            )
        for name in ("latency_s", "message_s"):
            value = getattr(c, name)
            if value is not None and not 0 <= value < math.inf:
                yield f"{place}.{name}", f"{value}; expected a time in seconds, 0 or more"
        for name in ("kernel_efficiency", "dma_efficiency"):
            if not 0 < getattr(c, name) <= 1:
                yield f"{place}.{name}", f"{getattr(c, name)}; expected a number above 0 and at most 1"
        if not 0 <= c.multicast_efficiency <= 1:
            yield f"{place}.multicast_efficiency", f"{c.multicast_efficiency}; expected a number from 0 to 1"


def _repeated(what: str, names: list[str]) -> Iterator[Defect]:
    first: dict[str, int] = {}
    for i, name in enumerate(names):
        if first.setdefault(name, i) != i:
            yield f"$.{what}[{i}].name", f"'{name}' is already the name of {what}[{first[name]}]"


def _link_defects(topology: Parts) -> Iterator[Defect]:
    count = len(topology.ranks)
    resources = {r.name for r in topology.resources}
    first: dict[tuple[int, int], int] = {}
    for i, link in enumerate(topology.links):
        place = f"$.links[{i}]"
        for end, rank in (("src", link.src), ("dst", link.dst)):
            if not 0 <= rank < count:
                yield f"{place}.{end}", f"rank {rank} does not exist; there are {count} ranks"
        if link.src == link.dst:
            yield f"{place}.dst", f"the link joins rank {link.src} to itself"
        if first.setdefault((link.src, link.dst), i) != i:
            other = first[link.src, link.dst]
            yield place, f"links[{other}] already joins {link.src} to {link.dst}; give parallel wires as lanes"
        if link.lanes < 0 or (link.lanes == 0 and not link.via):
            yield f"{place}.lanes", f"{link.lanes}; expected 1 or more, or 0 if the link goes via resources"
        yield from _unknown(f"{place}.via", link.via, resources)


def _fabric_defects(topology: Parts) -> Iterator[Defect]:
    count = len(topology.ranks)
    resources = {r.name for r in topology.resources}
    for i, fabric in enumerate(topology.fabrics):
        for j, port in enumerate(fabric.ports):
            place = f"$.fabrics[{i}].ports[{j}]"
            if not 0 <= port.rank < count:
                yield f"{place}.rank", f"rank {port.rank} does not exist; there are {count} ranks"
            yield from _unknown(f"{place}.out", port.out, resources)
            yield from _unknown(f"{place}.in", port.into, resources)


def _unknown(place: str, names: tuple[str, ...], known: set[str]) -> Iterator[Defect]:
    for i, name in enumerate(names):
        if name not in known:
            yield f"{place}[{i}]", f"there is no resource '{name}'"


def _bound_defects(topology: Parts) -> Iterator[Defect]:
    count = len(topology.ranks)
    for i, bound in enumerate(topology.bounds or ()):
        for j, (src, dst) in enumerate(bound.pairs):
            place = f"$.bounds[{i}].pairs[{j}]"
            if not (0 <= src < count and 0 <= dst < count):
                yield place, f"a rank of [{src}, {dst}] does not exist; there are {count} ranks"
            elif topology.path(src, dst) is None:
                yield place, f"no link or fabric joins {src} to {dst}"
