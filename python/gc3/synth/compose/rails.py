"""The choice of where chunks leave a group of ranks and where they enter others, for compositions.

Ranks with the same position in their nodes are a *rail*; a rank of a smaller node has several positions. Between the
groups of a level, data crosses over links of one rail. The rank from which a chunk leaves its group and those where it
enters other groups are chosen one chunk after the other, so that the fullest of the following parts is loaded least,
relative to what it carries: the links between groups of each rank, and all links that leave or enter a group.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

from gc3 import errors
from gc3.synth.bounds import cuts
from gc3.synth.problem import Hurry
from gc3.synth.problem.network import Edge, Network

# A part of the machine: 0 for what leaves and 1 for what enters, the level of the links, and ~group, or a rank, or the
# number of ranks plus that of a bound which all of the rank's links share.
_Part: TypeAlias = "tuple[int, int, int]"
# The parts that a send uses, each with the rounds that a chunk takes there; without those that have no links.
_Used: TypeAlias = "tuple[tuple[_Part, float], ...]"


_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Errand:
    """A chunk that has to get from one rank to others in one of the stages."""

    chunk: int
    source: int
    targets: frozenset[int]


@dataclass(frozen=True, slots=True)
class Stages:
    """Errands on the way between groups of a level."""

    # To the ranks where chunks leave their groups; if these ranks' group needs the chunk, to all of it.
    gather: list[Errand]
    cross: list[Errand]  # from group to group
    spread: list[Errand]  # from the ranks where chunks enter a group to the targets in it
    near: list[Errand]  # within groups, for chunks that leave from the rank that has them


@dataclass(frozen=True, slots=True)
class _Rail:
    """The ranks of a rail within a group of the next larger level."""

    members: dict[int, tuple[int, ...]]  # the ranks of each group that it connects
    reach: dict[int, frozenset[int]]  # the ranks of other groups that each rank reaches over the rail's links
    _known: dict[tuple[int, tuple[int, ...]], list[int]] = field(
        default_factory=dict[tuple[int, tuple[int, ...]], list[int]], init=False, compare=False
    )

    def entries(self, home: int, wanted: tuple[int, ...]) -> list[int]:
        """Returns the ranks of a group that reach all of the others."""
        if (home, wanted) not in self._known:
            self._known[home, wanted] = [
                r for r in self.members[home] if all(not self.reach[r].isdisjoint(self.members[g]) for g in wanted)
            ]
        return self._known[home, wanted]


def one_node(machine: str) -> errors.Gc3Error:
    """Returns the error that a machine has no nodes to compose schedules of."""
    return errors.error("BadArgument", f"'{machine}' is not made of several nodes: leave out --hierarchical")


class Machine:
    """The levels of a network: level 0 has the largest groups, and the last one is within nodes."""

    def __init__(self, network: Network) -> None:
        """Finds the rails.

        Raises:
            gc3.UserError: The network has no nodes, or its groups have no rails.
        """
        if not network.levels:
            raise one_node(network.name)
        self.network = network
        self.names = [name for name, _ in reversed(network.levels)]
        self.groups = [groups for _, groups in reversed(network.levels)]
        self.depth = len(self.groups)  # the level of links within nodes
        self._rooms: dict[_Part, float] = {}
        self._ports: dict[_Part, _Part] = {}
        self._used: dict[tuple[int, int, int], _Used] = {}
        self.rails = [self._rails(level) for level in range(self.depth)]

    def level_of(self, a: int, b: int) -> int:
        """Returns the level at which two ranks are in different groups of one larger group."""
        return next((k for k, groups in enumerate(self.groups) if groups[a] != groups[b]), self.depth)

    def parent(self, level: int, rank: int) -> int:
        """Returns the group of a rank on the next larger level."""
        return self.groups[level - 1][rank] if level else 0

    @cached_property
    def edges(self) -> list[list[int]]:
        """The edges of each level."""
        found: list[list[int]] = [[] for _ in range(self.depth + 1)]
        for e, (a, b) in enumerate(self.network.edges):
            found[self.level_of(a, b)].append(e)
        return found

    def within(self, level: int) -> set[Edge]:
        """Returns the edges inside groups of a level."""
        return {self.network.edges[e] for listed in self.edges[level + 1 :] for e in listed}

    def between(self, level: int) -> set[Edge]:
        """Returns the edges between groups of a level over which data crosses."""
        usable = {
            (a, b)
            for rails in self.rails[level].values()
            for rail in rails
            for members in rail.members.values()
            for a in members
            for b in rail.reach[a]
        }
        return usable & {self.network.edges[e] for e in self.edges[level]}

    @cached_property
    def _places(self) -> list[list[int]]:
        """The ranks of each rail."""
        nodes: dict[int, list[int]] = {}
        for rank, node in enumerate(self.groups[-1]):
            nodes.setdefault(node, []).append(rank)
        return [
            [members[place % len(members)] for members in nodes.values()]
            for place in range(max(map(len, nodes.values())))
        ]

    def _rails(self, level: int) -> dict[int, list[_Rail]]:
        """The rails between groups of a level, by the larger group that they are in."""
        found: dict[int, list[_Rail]] = {}
        onward: list[list[int]] = [[] for _ in range(self.network.ranks)]
        for e in self.edges[level]:
            a, b = self.network.edges[e]
            onward[a].append(b)
        siblings: dict[int, set[int]] = {}
        for rank, group in enumerate(self.groups[level]):
            siblings.setdefault(self.parent(level, rank), set()).add(group)
        for place in self._places:
            for parent, groups in siblings.items():
                ranks = [r for r in place if self.parent(level, r) == parent]
                members = {g: tuple(r for r in ranks if self.groups[level][r] == g) for g in sorted(groups)}
                rail = _Rail(members, {r: self._reached(r, onward, set(ranks), level) for r in ranks})
                if all(rail.entries(g, tuple(groups - {g})) for g in groups):
                    found.setdefault(parent, []).append(rail)
        if len(found) < len(siblings):
            name = self.names[level]
            raise errors.error(
                "NoPath",
                f"no ranks of '{self.network.name}' reach those of the same place in the other {name}s: no rails to "
                "cross by",
            )
        return found

    def _reached(self, start: int, onward: Sequence[Sequence[int]], allowed: set[int], level: int) -> frozenset[int]:
        seen, todo = {start}, [start]
        while todo:
            for target in onward[todo.pop()]:
                if target in allowed and target not in seen:
                    seen.add(target)
                    todo.append(target)
        groups = self.groups[level]
        return frozenset(r for r in seen if groups[r] != groups[start])

    def used(self, end: int, level: int, rank: int) -> _Used:
        """Returns the parts that a send over links of a level uses where it leaves (0) or enters (1)."""
        key = end, level, rank
        if key not in self._used:
            groups = ((end, k, ~self.groups[k][rank]) for k in range(level, self.depth))
            parts = (self.port(end, level, rank), *groups)
            self._used[key] = tuple((part, 1 / self.room(part)) for part in parts if self.room(part))
        return self._used[key]

    def port(self, end: int, level: int, rank: int) -> _Part:
        """Returns the part that the links of one level into or out of a rank use; ranks may share it, such as a NIC."""
        key = end, level, rank
        if key not in self._ports:
            links = self._links(end, level, rank)
            shared = set(self.network.bounds_of[links[0]] if links else ())
            shared.intersection_update(*(self.network.bounds_of[e] for e in links))
            bounds = self.network.bounds
            least = min(shared, key=lambda b: (bounds[b][1], -len(bounds[b][0])), default=None)
            self._ports[key] = key if least is None else (end, level, self.network.ranks + least)
        return self._ports[key]

    def _links(self, end: int, level: int, rank: int) -> list[int]:
        listed = self.network.incoming if end else self.network.outgoing
        return [e for e in listed[rank] if self.level_of(*self.network.edges[e]) == level]

    def room(self, part: _Part) -> float:
        """Returns the chunks that a part carries in a round; 0 if it has no links."""
        if part not in self._rooms:
            end, level, place = part
            if place >= self.network.ranks:
                room = self.network.bounds[place - self.network.ranks][1]
            elif place >= 0:
                room = cuts.room_of(self.network, self._links(end, level, place))
            else:
                groups = self.groups[level]
                crossing = (e for listed in self.edges[: level + 1] for e in listed)
                used = (e for e in crossing if groups[self.network.edges[e][end]] == ~place)
                room = cuts.room_of(self.network, used)
            self._rooms[part] = float(room)
        return self._rooms[part]


@dataclass(frozen=True, slots=True)
class _Way:
    """The way of a chunk: the rank where it leaves its group, and that where it enters each other group."""

    entry: int
    exits: dict[int, int]
    used: _Used


class Choice:
    """Chooses the ways of chunks between the groups of a level."""

    def __init__(self, machine: Machine, level: int) -> None:
        """Nothing is loaded yet."""
        self._machine = machine
        self._level = level
        self._load: Counter[_Part] = Counter()
        self._divisions: dict[tuple[int, frozenset[int]], tuple[frozenset[int], dict[int, frozenset[int]]]] = {}
        self._arrivals: dict[tuple[int, frozenset[int]], _Used] = {}
        self._distributions: dict[tuple[int, frozenset[int]], _Used] = {}
        self._enough = math.inf  # parts that are less full are as good as empty ones

    def stages(self, errands: Iterable[Errand], turn: Sequence[int], hurry: Hurry) -> Stages:
        """Returns the errands of all stages; the targets of each given errand are in one larger group.

        The turn of a chunk is its place among those of its source: sources alternate.
        """
        ordered = sorted(errands, key=lambda each: turn[each.chunk])
        shortest = self._ways(ordered, hurry)
        self._enough = self._average()
        made = Stages([], [], [], [])
        for errand, way in zip(ordered, self._ways(ordered, hurry, shortest), strict=True):
            self._add(errand, way, made)
        return made

    def _ways(
        self, errands: Sequence[Errand], hurry: Hurry, known: Sequence[_Way | None] | None = None
    ) -> list[_Way | None]:
        """The way of each chunk; None if it stays in its group. Known ways are kept unless a part is too full."""
        self._load.clear()
        for errand in errands:
            stays, _ = self._divided(errand)
            self._load.update([part for part, _ in self._distributing(errand.source, stays)])
        found: list[_Way | None] = []
        for i, errand in enumerate(errands):
            hurry()
            way = None if known is None else known[i]
            if way is None or self._cost(way.used, False)[0] > self._enough:
                way = self._way(errand.source, *self._divided(errand))
            found.append(way)
            if way is not None:
                self._load.update([part for part, _ in way.used])
        return found

    def _average(self) -> float:
        """How full the fullest parts are if those of the same kind in a group are loaded equally."""
        groups = self._machine.groups
        kinds = {(end, level, place < 0) for end, level, place in self._load}
        fullest = 0.0
        for end, level, together in kinds:
            alike: dict[int, set[_Part]] = {}
            for rank, home in enumerate(groups[self._level]):
                part = (end, level, ~groups[level][rank]) if together else self._machine.port(end, level, rank)
                alike.setdefault(home, set()).add(part)
            for parts in alike.values():
                room = sum(map(self._machine.room, parts))
                fullest = max(fullest, sum(self._load[part] for part in parts) / room if room else 0.0)
        return fullest * (1 + _ROUNDING)

    def _divided(self, errand: Errand) -> tuple[frozenset[int], dict[int, frozenset[int]]]:
        """The targets in the group of the source, and those in each other group."""
        key = self._machine.groups[self._level][errand.source], errand.targets
        if key not in self._divisions:
            wanted: dict[int, set[int]] = {}
            for target in errand.targets:
                wanted.setdefault(self._machine.groups[self._level][target], set()).add(target)
            stays = frozenset(wanted.pop(key[0], set[int]()))
            self._divisions[key] = stays, {group: frozenset(targets) for group, targets in wanted.items()}
        return self._divisions[key]

    def _add(self, errand: Errand, way: _Way | None, made: Stages) -> None:
        """Adds the stages of a chunk."""
        chunk, source = errand.chunk, errand.source
        stays, wanted = self._divided(errand)
        entry = source if way is None else way.entry
        if entry != source:
            made.gather.append(Errand(chunk, source, stays if entry in stays else frozenset({entry})))
        if stays and (entry == source or entry not in stays):
            made.near.append(Errand(chunk, source, stays))
        if way is None:
            return
        made.cross.append(Errand(chunk, entry, frozenset(way.exits.values())))
        for group, targets in wanted.items():
            rest = targets - {way.exits[group]}
            if rest:
                made.spread.append(Errand(chunk, way.exits[group], rest))

    def _way(self, source: int, stays: frozenset[int], wanted: dict[int, frozenset[int]]) -> _Way | None:
        home = self._machine.groups[self._level][source]
        best: tuple[tuple[float, float, bool, float], _Way] | None = None
        for rail in self._machine.rails[self._level][self._machine.parent(self._level, source)] if wanted else ():
            leaving = [(r, self._to_leave(source, r, stays)) for r in rail.entries(home, tuple(wanted))]
            if not leaving:
                continue
            _, entry, used = min((self._cost(parts, r != source), r, parts) for r, parts in leaving)
            at = rail.members[home].index(entry)
            exits: dict[int, int] = {}
            for group, targets in wanted.items():
                alike = rail.members[group][at % len(rail.members[group])]
                arriving = [(r, self._to_arrive(r, targets)) for r in rail.members[group] if r in rail.reach[entry]]
                _, exits[group], parts = min((self._cost(parts, r != alike), r, parts) for r, parts in arriving)
                used = used + parts
            cost = self._cost(used, entry != source)
            if best is None or cost < best[0]:
                best = cost, _Way(entry, exits, used)
        return None if best is None else best[1]

    def _to_leave(self, source: int, entry: int, stays: frozenset[int]) -> _Used:
        used = self._machine.used(0, self._level, entry)
        return used if entry == source or entry in stays else self._sent(source, entry) + used

    def _to_arrive(self, place: int, targets: frozenset[int]) -> _Used:
        key = place, targets
        if key not in self._arrivals:
            used = self._machine.used(1, self._level, place)
            if len(targets) > 1:
                used += self._distributing(place, targets)
            elif place not in targets:
                used += self._sent(place, min(targets))
            self._arrivals[key] = used
        return self._arrivals[key]

    def _sent(self, src: int, dst: int) -> _Used:
        level = self._machine.level_of(src, dst)
        return self._machine.used(0, level, src) + self._machine.used(1, level, dst)

    def _distributing(self, rank: int, targets: frozenset[int]) -> _Used:
        """What a rank uses to send to some targets, of which others send it on; each of them receives it anyway."""
        key = rank, targets
        if key not in self._distributions:
            level = min((self._machine.level_of(rank, target) for target in targets if target != rank), default=None)
            self._distributions[key] = () if level is None else self._machine.used(0, level, rank)
        return self._distributions[key]

    def _cost(self, used: _Used, other: bool) -> tuple[float, float, bool, float]:
        """What is smaller for a better way.

        Returns:
            How full the fullest part would be, but not less than it has to be; the sum over the parts; whether another
            way is preferred; how full the fullest part would be.
        """
        fullest = total = 0.0
        for part, rounds in used:
            fullest = max(fullest, (self._load[part] + 1) * rounds)
            total += rounds
        return max(fullest, self._enough), total, other, fullest
