"""The layout of a topology in a drawing."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from gc3.topologies._clusters import circle
from gc3.topologies.model import Topology
from gc3.topologies.parts import Fabric

Point = tuple[float, float]

_MARGIN = 0.34  # from the outermost ranks to the edge of their box
_GAP = 1.3  # between boxes, with room for the name of a network
_BEND = 0.18
_NEAR = 0.09  # a line this close to a rank seems to end at the rank
_MOST_PORTS = 16  # of one rank to one fabric


@dataclass(frozen=True, slots=True)
class Line:
    """A line: both directions of a link, or the connection of a rank or a switch to a switch.

    Attributes:
        start: One end.
        end: The other.
        label: The link class.
        bandwidth: Bytes per second and direction; None: not known.
        dashed: Whether other connections share its bandwidth.
        bend: Curvature; 0 is straight.
        resources: Names of the resources that it stands for.
    """

    start: Point
    end: Point
    label: str
    bandwidth: float | None
    dashed: bool
    bend: float = 0.0
    resources: tuple[str, ...] = field(default=(), compare=False)


class Layout:
    """The drawing of a topology, in units in which the side of a node is 1 or more.

    Attributes:
        points: The positions of the ranks.
        boxes: Name, lower left corner and side of each node, if there are several.
        hubs: Position and name of each fabric that joins at least two ranks.
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
        self._pitch = self._side + 2 * _MARGIN + _GAP
        self._columns = math.ceil(math.sqrt(self._nodes))
        self.points: list[Point] = [(0.0, 0.0)] * topology.rank_count
        self.boxes: list[tuple[str, Point, float]] = []
        for node, ranks in members.items():
            self._place(node, ranks)
        self.hubs: list[tuple[Point, str]] = []
        self.lines: list[Line] = []
        self._links()
        self._leads: dict[tuple[int, str], Point] = {}
        for fabric in topology.fabrics:
            self._fabric(fabric)
        self.frame = self._frame()
        (left, bottom), (right, top) = self.frame
        unit = max(0.25, min(2.2, 24 / max(right - left, top - bottom)))
        self.inches = (max(3.0, (right - left) * unit), max(2.0, (top - bottom) * unit))
        self.scale = min(1.0, unit / 1.8)

    def _corner(self, node: int) -> Point:
        row, column = divmod(node, self._columns)
        return column * self._pitch, -row * self._pitch

    def _place(self, node: int, ranks: list[int]) -> None:
        left, bottom = self._corner(node)
        for i, r in enumerate(ranks):
            position = self._topology.ranks[r].position
            x, y = position or ((0.5, 0.5) if len(ranks) == 1 else circle(i, len(ranks)))
            self.points[r] = (left + x * self._side, bottom + y * self._side)
        if self._nodes > 1:
            self.boxes.append((f"node {node}", (left - _MARGIN, bottom - _MARGIN), self._side + 2 * _MARGIN))

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
        """Whether the straight line between two points crosses a rank other than its ends."""
        x, y = self._places[:, 0] - start[0], self._places[:, 1] - start[1]
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
        if len(ranks) == 1 or (fabric.across_nodes and len(nodes) == 1):
            return  # it joins no two ranks
        hub = self._hub(ranks, nodes)
        self.hubs.append((hub, fabric.name.rpartition(".")[2]))
        done: set[tuple[Point, tuple[str, ...]]] = set()
        for port in fabric.ports:
            way, start = port.out or port.into, self.points[port.rank]
            # If a port begins with the rank's connection to an earlier switch, the line continues from that switch.
            lead = self._leads.get((port.rank, way[0])) if way else None
            if lead is not None and way[1:]:
                start, way = lead, way[1:]
            elif way:
                self._leads[port.rank, way[0]] = hub
            label = self._slowest_class(way) or fabric.link_class
            if (start, way) not in done:
                both = tuple(dict.fromkeys((*way, *port.into)))
                self._line(start, hub, label, self._narrowest(way), dashed=fabric.across_nodes, resources=both)
            done.add((start, way))

    def _hub(self, ranks: list[int], nodes: set[int]) -> Point:
        if len(nodes) == 1:
            x, y = self._places[ranks].mean(axis=0)
            places = [place for place, _ in self.hubs]
            while any(math.dist(place, (x, y)) < _MARGIN for place in places):
                y -= _MARGIN
            return float(x), float(y)
        # Between the boxes, or below them if a box is in the middle.
        rows = math.ceil(self._nodes / self._columns)
        x = ((self._columns - 1) * self._pitch + self._side) / 2
        y = (self._side - (rows - 1) * self._pitch) / 2
        if self._columns % 2 and rows % 2:
            y = -(rows - 1) * self._pitch - _MARGIN - _GAP / 2
        return x, y - 0.4 * sum(1 for (px, _), _ in self.hubs if px == x)

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
        ends = [*self.points, *(place for place, _ in self.hubs)]
        for _, (left, bottom), side in self.boxes:
            ends += [(left, bottom), (left + side, bottom + side)]
        xs, ys = zip(*ends, strict=True)
        space = 0.12 if self.boxes else 0.3
        return (min(xs) - space, min(ys) - space), (max(xs) + space, max(ys) + space)


def line_widths(bandwidths: Iterable[float | None], *, thickest: float) -> dict[float | None, float]:
    """Returns a line width for each bandwidth, by its logarithm: a tenth of the largest is thin, a half still thick."""
    known = sorted({b for b in bandwidths if b is not None})
    thinnest = thickest / 5
    widths: dict[float | None, float] = {None: thinnest}
    if known:
        span = max(math.log(known[-1] / known[0]), math.log(10))
        widths |= {b: thickest - (thickest - thinnest) * math.log(known[-1] / b) / span for b in known}
    return widths
