"""The layout of a topology in a drawing."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np

from gc3.support.words import counted
from gc3.topologies._clusters import circle
from gc3.topologies.model import Topology
from gc3.topologies.parts import Fabric

Point = tuple[float, float]
_Way = tuple[str, ...]  # resources in the order in which data passes them
_Done = set[tuple[Point, _Way]]  # the start and the way of the lines that are drawn

_MARGIN = 0.34  # from the outermost ranks to the edge of their box
_GAP = 1.3  # between boxes, with room for the name of a network
_NAME = 0.55  # what the name of a node takes of its upper edge
_TITLE = 0.3  # the room for the name of a group of nodes
_BEND = 0.18
_NEAR = 0.09  # a line this close to a rank seems to end at the rank
_HALF = 0.4  # of the name of a network
JOINT = "PCIe switch or CPU"  # what is between a rank and a NIC
_JOINT = 0.17  # from NICs to the switch that joins them to their ranks
_MOST_PORTS = 16  # of one rank to one fabric
_MOST_AROUND = 4  # nodes around a network in their middle; the network of more is a line below each row of nodes
_BUS, _TRUNK = 0.22, 0.9  # between the lines of two networks: below the rows, and beside them


@dataclass(frozen=True, slots=True)
class Line:
    """A line: both directions of a link, or the connection of a rank or a switch to a switch."""

    start: Point  # one end
    end: Point  # the other
    label: str  # the link class
    bandwidth: float | None  # bytes per second and direction; None: not known
    dashed: bool  # whether other connections share its bandwidth
    bend: float = 0.0  # curvature; 0 is straight
    resources: tuple[str, ...] = field(default=(), compare=False)  # names of the resources that it stands for


@dataclass(frozen=True, slots=True)
class _Block:
    """A part of the grid of nodes: the corner of each node and the frames of groups, from its own lower left corner."""

    corners: dict[int, Point]
    size: Point
    frames: list[tuple[str, Point, Point]]

    def at(self, x: float, y: float) -> _Block:
        corners = {node: (left + x, bottom + y) for node, (left, bottom) in self.corners.items()}
        frames = [(name, (a + x, b + y), (c + x, d + y)) for name, (a, b), (c, d) in self.frames]
        return _Block(corners, self.size, frames)

    def framed(self, name: str) -> _Block:
        """The block with a frame around it, and room for its name."""
        width, height = self.size[0] + 2 * _MARGIN, self.size[1] + 2 * _MARGIN + _TITLE
        inner = self.at(_MARGIN, _MARGIN)
        return _Block(inner.corners, (width, height), [(name, (0.0, 0.0), (width, height)), *inner.frames])


def _grid(blocks: list[_Block]) -> _Block:
    """Blocks in rows from the top, about as many as columns."""
    columns = math.ceil(math.sqrt(len(blocks)))
    rows = -(-len(blocks) // columns)
    width, height = (max(block.size[i] for block in blocks) for i in (0, 1))
    corners: dict[int, Point] = {}
    frames: list[tuple[str, Point, Point]] = []
    for i, block in enumerate(blocks):
        row, column = divmod(i, columns)
        moved = block.at(column * (width + _GAP), (rows - 1 - row) * (height + _GAP))
        corners.update(moved.corners)
        frames += moved.frames
    return _Block(corners, (columns * (width + _GAP) - _GAP, rows * (height + _GAP) - _GAP), frames)


def _around(areas: list[tuple[Point, Point]]) -> tuple[Point, Point]:
    """The area around some others."""
    (xs, ys), (right, top) = (zip(*corner, strict=True) for corner in zip(*areas, strict=True))
    return (min(xs), min(ys)), (max(right), max(top))


def _mean(places: list[Point], along: int) -> float:
    """The middle of places; rounded, so that the order of NICs is the same in all nodes."""
    return round(sum(place[along] for place in places) / len(places), 6)


class Layout:
    """The drawing of a topology, in units in which the side of a node is 1 or more.

    Attributes:
        points: The positions of the ranks.
        boxes: Name, lower left corner and side of each node, if there are several.
        groups: Name, lower left and upper right corner of each group of nodes, such as a rack; outer groups first.
        hubs: Position and name of each fabric that joins at least two ranks.
        counts: Position and text of what a line stands for, if that is the lines of several ranks.
        nics: Position and name of each NIC, on the edge of its node that is nearest to the network.
        joints: The position of the PCIe switch or CPU between a NIC and its ranks, by the name of the NIC.
        lines: The lines.
        frame: Lower left and upper right corner of the drawing.
        scale: The size of a rank relative to the normal size, at most 1.
        inches: Width and height.
    """

    def __init__(self, topology: Topology) -> None:
        """Lays `topology` out."""
        self._topology = topology
        members: dict[int, list[int]] = {}
        for r, rank in enumerate(topology.ranks):
            members.setdefault(rank.node, []).append(r)
        self._nodes = len(members)
        fullest = max(len(ranks) for ranks in members.values())
        # A node with more ranks is drawn larger, so that they have room.
        self._side = 1.0 + 0.28 * max(fullest - 4, 0) ** 0.8
        self.points: list[Point] = [(0.0, 0.0)] * topology.rank_count
        self.boxes: list[tuple[str, Point, float]] = []
        self.groups: list[tuple[str, Point, Point]] = []
        self._corners = self._arranged(sorted(members))
        for node, ranks in members.items():
            self._place(node, ranks)
        self.hubs: list[tuple[Point, str]] = []
        self.counts: list[tuple[Point, str]] = []
        self._buses = 0
        self.nics: dict[str, Point] = {}
        self.lines: list[Line] = []
        self._links()
        self.joints: dict[str, Point] = {}
        self._with_nics: set[int] = set()
        self._leads: dict[tuple[int | str, ...], Point] = {}
        for fabric in topology.fabrics:
            self._fabric(fabric)
        self.frame = self._frame()
        (left, bottom), (right, top) = self.frame
        unit = max(0.25, min(2.2, 24 / max(right - left, top - bottom)))
        self.inches = (max(3.0, (right - left) * unit), max(2.0, (top - bottom) * unit))
        self.scale = min(1.0, unit / 1.8)

    def _arranged(self, nodes: list[int]) -> dict[int, Point]:
        """The lower left corner of each node without its margin: in a grid, and groups of nodes in grids of grids."""
        box = self._side + 2 * _MARGIN
        blocks = [_Block({node: (0.0, 0.0)}, (box, box), []) for node in nodes]
        for level in self._topology.levels:
            inside: dict[int, list[_Block]] = {}
            for block in blocks:
                inside.setdefault(level.groups[min(block.corners)], []).append(block)
            blocks = [_grid(some).framed(f"{level.name} {group}") for group, some in sorted(inside.items())]
        whole = _grid(blocks)
        x, y = whole.corners[nodes[0]]  # the first node is at the origin, and rows go down from there
        self.groups = whole.at(-x - _MARGIN, -y - _MARGIN).frames if len(nodes) > 1 else []
        return whole.at(-x, -y).corners

    def _place(self, node: int, ranks: list[int]) -> None:
        left, bottom = self._corners[node]
        for i, r in enumerate(ranks):
            position = self._topology.ranks[r].position
            x, y = position or ((0.5, 0.5) if len(ranks) == 1 else circle(i, len(ranks)))
            self.points[r] = (left + x * self._side, bottom + y * self._side)
        if self._nodes > 1:
            ports = (port for fabric in self._topology.fabrics for port in fabric.ports if port.rank in ranks)
            count = len({self._nic(name) for port in ports for name in (*port.out, *port.into)} - {""})
            name = f"node {node}" + (f", {counted(count, 'NIC')}" if count else "")
            self.boxes.append((name, (left - _MARGIN, bottom - _MARGIN), self._side + 2 * _MARGIN))

    def _links(self) -> None:
        done: set[tuple[int, int, str]] = set()
        for link in self._topology.links:
            a, b = sorted((link.src, link.dst))
            if (a, b, link.link_class) in done:
                continue
            done.add((a, b, link.link_class))
            rate = self._bandwidth(link.link_class, link.lanes) if link.lanes else self._narrowest(link.via)
            own = (f"link {a}->{b}", f"link {b}->{a}") if link.lanes else ()
            ends = self.points[a], self.points[b]
            self._line(*ends, link.link_class, rate, dashed=not link.lanes, resources=(*own, *link.via))

    def _line(
        self,
        start: Point,
        end: Point,
        label: str,
        rate: float | None,
        *,
        dashed: bool,
        resources: tuple[str, ...],
    ) -> None:
        bend = _BEND if self._passes_a_rank(start, end) else 0.0
        line = Line(start, end, label, rate, dashed, bend, resources)
        if line not in self.lines[-_MOST_PORTS:]:
            self.lines.append(line)

    def _passes_a_rank(self, start: Point, end: Point) -> bool:
        """Whether the straight line between two points crosses a rank or a switch other than its ends."""
        places = self._places
        if self.hubs:
            places = np.concatenate((places, np.array([place for place, _ in self.hubs], np.float64)))
        x, y = places[:, 0] - start[0], places[:, 1] - start[1]
        way = (end[0] - start[0], end[1] - start[1])
        length = max(math.hypot(*way), 1e-9)
        along = (x * way[0] + y * way[1]) / length
        away = np.abs(x * way[1] - y * way[0]) / length
        return bool(((away < _NEAR) & (along > _NEAR) & (along < length - _NEAR)).any())

    @cached_property
    def _places(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        return np.array(self.points, np.float64)

    def _fabric(self, fabric: Fabric) -> None:
        ranks = list(dict.fromkeys(port.rank for port in fabric.ports))
        nodes = {self._topology.ranks[r].node for r in ranks}
        if len(ranks) == 1 and not fabric.across_nodes:
            return  # it joins no two ranks
        if len(nodes) == 1 < self._nodes and fabric.across_nodes:
            return  # the switch of a rack of one node, which the network above continues
        earlier = dict(self._leads)
        first = {(port.rank, *self._beginning(port.out or port.into)) for port in fabric.ports}
        if len(nodes) > _MOST_AROUND and not first & earlier.keys():
            self._bus(fabric, nodes)
            return
        if first <= earlier.keys() and self.groups:
            self._spine(fabric, earlier)
            return
        hub = None
        if not fabric.across_nodes or len(nodes) > 1:
            hub = self._hub(ranks, nodes)
            self.hubs.append((hub, fabric.name.rpartition(".")[2]))
        if fabric.across_nodes:
            for node in sorted(nodes - self._with_nics):
                self._place_nics(fabric, node, hub)
            self._with_nics |= nodes
        done: _Done = set()
        for port in fabric.ports:
            way, back, start = port.out or port.into, port.into, self.points[port.rank]
            # If a port begins with the rank's connection to an earlier switch, the line continues from that switch.
            beginning = self._beginning(way)
            lead, rest = earlier.get((port.rank, *beginning)), way[len(beginning) :]
            if lead is not None and rest:
                start, way = lead, rest
            elif way and hub is not None:
                self._leads[(port.rank, *beginning)] = hub
            if (nic := self._nic_of(way)) is not None:
                start, way, back = self._to_nic(done, start, nic, way, back, fabric)
            if hub is not None:
                self._lead(done, start, hub, way, back, fabric)

    def _bus(self, fabric: Fabric, nodes: set[int]) -> None:
        """Draws the network of many nodes as a line below each row of them, so that what leads there crosses no node.

        The ranks of a node that have no NIC share a line to it.
        """
        number, self._buses = self._buses, self._buses + 1
        areas = {node: self._box(node) for node in sorted(nodes)}
        (left, _), (_, top) = _around(list(areas.values()))
        beside = left - _GAP / 2 - _TRUNK * number
        of_row: dict[float, list[str]] = {}
        rows: dict[float, float] = {}  # the right end of each
        rate = None
        for node, (low, high) in areas.items():
            level = low[1] - _GAP / 4 - _BUS * number
            rows[level] = max(rows.get(level, high[0]), high[0])
            ports = [port for port in fabric.ports if self._topology.ranks[port.rank].node == node]
            if fabric.across_nodes:
                self._place_nics(fabric, node, ((low[0] + high[0]) / 2, level))
            done: _Done = set()
            bundle: list[str] = []
            for port in ports:
                way, back = port.out or port.into, port.into
                rate = self._narrowest(way)
                of_row.setdefault(level, []).extend((*way, *back))
                nic = self._nic_of(way)
                if nic is None:
                    bundle += dict.fromkeys((*way, *back))
                    continue
                place, way, back = self._to_nic(done, self.points[port.rank], nic, way, back, fabric)
                self._lead(done, place, (place[0], level), way, back, fabric)
            if bundle:
                x, count = low[0] + _MARGIN / 2 + _BUS * number, len({port.rank for port in ports})
                line = Line((x, low[1]), (x, level), fabric.link_class, rate, dashed=False, resources=tuple(bundle))
                self.lines.append(line)
                self.counts += [((x, low[1]), f"{count} x")] if count > 1 else []
        self._trunk(fabric, rate, (beside, top), rows, of_row)

    def _spine(self, fabric: Fabric, earlier: dict[tuple[int | str, ...], Point]) -> None:
        """Draws the network above that of each rack as a line below each row of racks, so that it crosses no node."""
        of_switch: dict[Point, list[str]] = {}
        for port in fabric.ports:
            way = port.out or port.into
            beginning = self._beginning(way)
            of_switch.setdefault(earlier[(port.rank, *beginning)], []).extend((*way[len(beginning) :], *port.into[:1]))
        _, low, high = zip(*self.groups, strict=True)
        (left, _), (_, top) = _around(list(zip(low, high, strict=True)))
        of_row: dict[float, list[str]] = {}
        rows: dict[float, float] = {}
        rate = None
        for (x, y), names in of_switch.items():
            level = max(bottom for _, (_, bottom), _ in self.groups if bottom < y) - _GAP / 4
            used = tuple(dict.fromkeys(names))
            rate = self._narrowest(used)
            self._line((x, y), (x, level), fabric.link_class, rate, dashed=fabric.across_nodes, resources=used)
            of_row.setdefault(level, []).extend(used)
            rows[level] = max(rows.get(level, x), x)
        self._trunk(fabric, rate, (left - _GAP / 2, top), rows, of_row)

    def _trunk(
        self,
        fabric: Fabric,
        rate: float | None,
        corner: Point,
        rows: dict[float, float],
        of_row: dict[float, list[str]],
    ) -> None:
        """Draws the lines below rows, each to its right end, and the one beside them that joins them to the network."""
        beside, _ = corner
        ends = [((beside, y), (right, y), of_row[y]) for y, right in rows.items()]
        ends.append(((beside, min(rows)), corner, [name for names in of_row.values() for name in names]))
        for start, end, names in ends:
            used = tuple(dict.fromkeys(names))
            self.lines.append(Line(start, end, fabric.link_class, rate, fabric.across_nodes, resources=used))
        self.hubs.append((corner, fabric.name.rpartition(".")[2]))

    def _nic_of(self, way: _Way) -> str | None:
        """The first NIC on a way that has a place."""
        return next((name for name in map(self._nic, way) if name in self.nics), None)

    def _beginning(self, way: _Way) -> _Way:
        """The resources of a way up to its NIC, or the first one."""
        at = next((k for k, name in enumerate(way) if self._nic(name)), 0)
        return way[: at + 1]

    def _to_nic(
        self, done: _Done, start: Point, nic: str, way: _Way, back: _Way, fabric: Fabric
    ) -> tuple[Point, _Way, _Way]:
        """Draws the way from a rank to a NIC, by what joins them; returns the place of the NIC, and the way from it."""
        at, place = next(k for k, name in enumerate(way) if self._nic(name) == nic), self.nics[nic]
        of_nic = tuple(name for name in back if self._nic(name) == nic)
        if at and nic in self.joints:
            before = tuple(name for name in back if name not in of_nic)
            self._lead(done, start, self.joints[nic], way[:at], before, fabric)
            self._lead(done, self.joints[nic], place, way[at : at + 1], of_nic, fabric)
        else:
            self._lead(done, start, place, way[: at + 1], back, fabric)
        return place, way[at:], of_nic

    def _lead(self, done: _Done, start: Point, end: Point, way: _Way, back: _Way, fabric: Fabric) -> None:
        """A line from a rank, a switch or a NIC to a NIC or a hub, once."""
        if (start, way) not in done:
            label = self._slowest_class(way) or fabric.link_class
            both = tuple(dict.fromkeys((*way, *back)))
            self._line(start, end, label, self._narrowest(way), dashed=fabric.across_nodes, resources=both)
        done.add((start, way))

    def _nic(self, resource: str) -> str:
        """The name of the NIC that a resource is a direction of; empty: it is none."""
        return resource.rpartition(".")[0] if resource in self._of_nics else ""

    @cached_property
    def _of_nics(self) -> frozenset[str]:
        return frozenset(r.name for r in self._topology.resources if r.kind == "nic")

    def _place_nics(self, fabric: Fabric, node: int, hub: Point | None) -> None:
        """Places the NICs of a node, and between them and their ranks the PCIe switches or CPUs that join them."""
        self._line_up_nics(fabric, node, hub)
        users: dict[str, set[int]] = {}
        for port in fabric.ports:
            way = port.out or port.into
            if (
                self._topology.ranks[port.rank].node == node
                and (nic := self._nic_of(way[1:]))
                and not self._nic(way[0])
            ):
                users.setdefault(nic, set()).add(port.rank)
        (left, bottom), (right, top) = self._box(node)
        while users:  # NICs that a rank uses both are behind one switch
            nic, ranks = users.popitem()
            same = [nic, *(other for other, its in users.items() if its & ranks)]
            users = {other: its for other, its in users.items() if other not in same}
            x, y = ((min(at) + max(at)) / 2 for at in zip(*(self.nics[each] for each in same), strict=True))
            dx = (
                0.0 if y in (bottom, top) else (left + right) / 2 - x
            )  # from an edge at right angles, else to the middle
            dy = 0.0 if x in (left, right) else (bottom + top) / 2 - y
            length = max(math.hypot(dx, dy), 1e-9)
            self.joints |= dict.fromkeys(same, (x + _JOINT * dx / length, y + _JOINT * dy / length))

    def _line_up_nics(self, fabric: Fabric, node: int, hub: Point | None) -> None:
        """Places the NICs of a node on its edge that faces the network, in the order of their ranks along it.

        Without a network each is beside its ranks, outside, if they are on one side of the node.
        """
        users: dict[str, list[Point]] = {}
        for port in fabric.ports:
            if self._topology.ranks[port.rank].node == node:
                for name in dict.fromkeys(self._nic(each) for each in (*port.out, *port.into)):
                    users.setdefault(name, []).append(self.points[port.rank])
        users.pop("", None)
        (left, bottom), (right, top) = self._box(node)
        if hub is None and (outside := self._outside(node, users)):
            self.nics |= outside
            return
        beside = hub is not None and bottom < hub[1] < top and not left < hub[0] < right
        along = int(beside)
        order = sorted(reversed(users) if beside else users, key=lambda name: _mean(users[name], along))
        for k, name in enumerate(order):
            share = (k + 0.5) / len(order)
            if beside and hub is not None:
                self.nics[name] = (right if hub[0] > right else left), bottom + share * (top - _TITLE - bottom)
            else:
                above = hub is not None and hub[1] > top
                first = left + (_NAME if above or self._buses else 0.0)
                self.nics[name] = first + share * (right - first), top if above else bottom

    def _outside(self, node: int, users: dict[str, list[Point]]) -> dict[str, Point]:
        """The places of NICs on a circle around a node, each nearest to its ranks; none if two would be too near."""
        (left, bottom), (right, top) = self._box(node)
        x, y = (left + right) / 2, (bottom + top) / 2
        of_node = (self.points[r] for r, rank in enumerate(self._topology.ranks) if rank.node == node)
        radius = max(math.dist(place, (x, y)) for place in of_node) + _MARGIN
        found: dict[str, Point] = {}
        for name, places in users.items():
            way = [sum(at) / len(places) - middle for at, middle in zip(zip(*places, strict=True), (x, y), strict=True)]
            length = math.hypot(*way)
            if length < _MARGIN:
                return {}
            found[name] = x + radius * way[0] / length, y + radius * way[1] / length
        apart = all(math.dist(a, b) > _MARGIN for a, b in combinations(found.values(), 2))
        return found if apart else {}

    def _hub(self, ranks: list[int], nodes: set[int]) -> Point:
        if len(nodes) == 1:
            x, y = self._places[ranks].mean(axis=0)
            places = [place for place, _ in self.hubs]
            while any(math.dist(place, (x, y)) < _MARGIN for place in places):
                y -= _MARGIN
            return float(x), float(y)
        # Between the boxes, or below them if a box is in the middle.
        low, high = _around([self._box(node) for node in nodes])
        x, y = ((a + b) / 2 for a, b in zip(low, high, strict=True))
        areas = [*map(self._box, self._corners), *((a, b) for _, a, b in self.groups)]
        areas = [area for area in areas if _around([area, (low, high)]) != area]  # it may be in the middle of its group
        if any(left < x < right and bottom < y < top for (left, bottom), (right, top) in areas):
            y = _around(areas)[0][1] - _GAP / 2
        return x, y - 0.4 * sum(1 for (px, _), _ in self.hubs if px == x)

    def _box(self, node: int) -> tuple[Point, Point]:
        left, bottom = self._corners[node]
        return (left - _MARGIN, bottom - _MARGIN), (left + self._side + _MARGIN, bottom + self._side + _MARGIN)

    def _bandwidth(self, link_class: str, lanes: int) -> float | None:
        lane = self._topology.link_class(link_class).bandwidth_bytes_per_s
        return None if lane is None else lane * lanes

    @cached_property
    def _rates(self) -> dict[str, tuple[str, float | None]]:
        return {r.name: (r.link_class, self._bandwidth(r.link_class, r.lanes)) for r in self._topology.resources}

    def _narrowest(self, names: Iterable[str]) -> float | None:
        """The bandwidth of a path: that of its slowest part, if all are known."""
        rates = [self._rates[name][1] for name in names]
        known = [rate for rate in rates if rate is not None]
        return min(known) if known and len(known) == len(rates) else None

    def _slowest_class(self, names: Iterable[str]) -> str | None:
        """The class of the slowest part of a path."""
        parts = [self._rates[name] for name in names]
        return min(parts, key=lambda part: part[1] or math.inf)[0] if parts else None

    def _frame(self) -> tuple[Point, Point]:
        ends = [
            *self.points,
            *((x + side, y) for (x, y), _ in self.hubs for side in (-_HALF, _HALF)),
            *self.nics.values(),
        ]
        ends += [end for line in self.lines for end in (line.start, line.end)]
        for _, (left, bottom), side in self.boxes:
            ends += [(left, bottom), (left + side, bottom + side)]
        for _, low, high in self.groups:
            ends += [low, high]
        xs, ys = zip(*ends, strict=True)
        space = 0.12 if self.boxes else 0.3
        return (min(xs) - space, min(ys) - space), (max(xs) + space, max(ys) + space)


def nic_number(name: str) -> str:
    """Returns the number in the name of a NIC.

    >>> nic_number("node1.nic12"), nic_number("node0.nic3.mlx5_0"), nic_number("mlx")
    ('12', '3', '')
    """
    found = re.search(r"nic(\d+)", name)
    return found[1] if found else ""
