"""Lower bounds by the ports of ranks and nodes alone, for machines on which too many pairs of ranks reach each other.

What must enter or leave a rank or a node crosses its ports and links. Each way in is a row of resources, from the rank
outwards; the resources at the same place of all rows together carry no more than their rates. In an AllReduce and in
what distributes or adds up one buffer, a number of messages must also go between all ranks, or all nodes (see
`gc3.synth.bounds`), unless switches carry several as one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from gc3.synth.bounds.cuts import shown
from gc3.topologies.model import Topology
from gc3.topologies.parts import Resource

_Rows: TypeAlias = "set[tuple[int, ...]]"

# For each byte of S, of k of n ranks: what must enter them, and what must leave them.
_CROSSING: Mapping[str, Callable[[int, int], tuple[float, float]]] = {
    "allgather": lambda k, n: ((n - k) / n, k / n),
    "reducescatter": lambda k, n: (k / n, (n - k) / n),
    "allreduce": lambda _k, _n: (1.0, 1.0),
    "alltoall": lambda k, n: (k * (n - k) / n, k * (n - k) / n),
    "broadcast": lambda _k, _n: (1.0, 1.0),
    "reduce": lambda _k, _n: (1.0, 1.0),
    "gather": lambda k, n: ((n - k) / n, k / n),
    "scatter": lambda k, n: (k / n, (n - k) / n),
}
# Whether the root is inside where something must enter, and where something must leave.
_ROOTED: Mapping[str, tuple[bool, bool]] = {
    "broadcast": (False, True),
    "reduce": (True, False),
    "gather": (True, False),
    "scatter": (False, True),
}
# How often S goes between k parts, for each but one.
_MESSAGES: Mapping[str, int] = {"allreduce": 2, "allgather": 1, "reducescatter": 1, "broadcast": 1, "reduce": 1}


@dataclass(frozen=True, slots=True)
class PortBound:
    """A lower bound on the time for each byte of S, in the units of the rates, with its proof."""

    least: float
    proof: str


def port_bound(topology: Topology, collective: str, root: int, rate: Callable[[Resource], float]) -> PortBound:
    """Returns the bound of a built-in collective; `rate`: what a resource carries in a unit of time."""
    ranks = topology.rank_count
    nodes: dict[int, list[int]] = {}
    for rank, at in enumerate(topology.ranks):
        nodes.setdefault(at.node, []).append(rank)
    rates = [rate(resource) for resource in topology.all_resources]
    best = PortBound(0.0, "nothing has to move")
    for parts in ([[rank] for rank in range(ranks)], list(nodes.values())):
        if len(parts) == 1:
            continue
        ways = _Ways(topology, parts)
        for number, part in enumerate(parts):
            amounts = _amounts(collective, part, ranks, root)
            for end, (amount, verb) in enumerate(zip(amounts, ("reach", "leave"), strict=True)):
                if amount > 0:
                    least = amount / room if (room := _room(ways.rows[end][number], rates)) else math.inf
                    if least > best.least:
                        best = PortBound(least, f"what must {verb} {shown(part)}")
        messages = _MESSAGES.get(collective, 0) * (len(parts) - 1)
        if messages and not topology.multicasts:
            room = min(_room(set[tuple[int, ...]]().union(*rows), rates) for rows in ways.rows)
            if room and messages / room > best.least:
                kind = "ranks" if len(parts) == ranks else "nodes"
                best = PortBound(messages / room, f"{messages} messages must go between {len(parts)} {kind}")
    return best


def _amounts(collective: str, part: Sequence[int], ranks: int, root: int) -> tuple[float, float]:
    if collective == "alltonext":
        inside = set(part)
        last = {rank for rank in part if rank + 1 < ranks and rank + 1 not in inside}
        return float(sum(rank > 0 and rank - 1 not in inside for rank in part)), float(len(last))
    amounts = _CROSSING[collective](len(part), ranks)
    wanted = _ROOTED.get(collective)
    if wanted is None:
        return amounts
    entering, leaving = (a if (root in part) == inside else 0.0 for a, inside in zip(amounts, wanted, strict=True))
    return entering, leaving


class _Ways:
    """For each part of the ranks the ways into it and out of it: rows of resources, from its ranks outwards."""

    def __init__(self, topology: Topology, parts: Sequence[Sequence[int]]) -> None:
        part_of = {rank: number for number, part in enumerate(parts) for rank in part}
        into: list[_Rows] = [set() for _ in parts]
        out: list[_Rows] = [set() for _ in parts]
        self.rows = into, out
        parted = [part_of[rank] for rank in range(topology.rank_count)]
        nodes = [rank.node for rank in topology.ranks]
        members = [
            {(nodes if fabric.across_nodes else parted)[port.rank] for port in fabric.ports}
            for fabric in topology.fabrics
        ]
        for rank, number in part_of.items():
            for fabric, ports in topology.ports(rank).items():
                if len(members[fabric]) > 1:
                    for leaving, entering in ports:
                        out[number].add(leaving)
                        into[number].add(entering[::-1])
        for src, dst, resources in _links(topology):
            if part_of[src] != part_of[dst]:
                out[part_of[src]].add(resources)
                into[part_of[dst]].add(resources[::-1])


def _links(topology: Topology) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    for link in topology.links:
        path = topology.path(link.src, link.dst)
        if path is not None:
            yield link.src, link.dst, path.resources


def _room(rows: _Rows, rates: Sequence[float]) -> float:
    """What crosses some ways together in a unit of time, at most."""
    if () in rows:
        return math.inf  # nothing limits this way
    places = range(max(map(len, rows), default=0))
    return min((sum(rates[r] for r in {row[min(k, len(row) - 1)] for row in rows}) for k in places), default=0.0)
