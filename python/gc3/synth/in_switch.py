"""Trees whose branches a switch multicasts.

Between a rank and those that it reaches by such a switch stands a hub in a second network: what the rank sends crosses
the edge to its hub once, and the edges from there to each receiver. So the methods that grow trees need to know nothing
of switches. A hub takes no time: the edge to it and those from it are one hop of the schedule, in one step.

A reduction is the inverse: its network is reversed, and there a sum is a multicast.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction

from gc3.synth import pipeline
from gc3.synth.demand import Demand
from gc3.synth.groups import loads
from gc3.synth.limits import TimeUp
from gc3.synth.network import Capacity, Edge, Network
from gc3.synth.placing import Hop, steps_of
from gc3.synth.schedule import Schedule, Send
from gc3.synth.symmetry import Group, trivial

_FEW_SENDS = 20_000


def applies(network: Network, demand: Demand) -> bool:
    """Returns whether multicasts help: a chunk has several targets, and some switch carries them."""
    return bool(network.sent_once) and not demand.routes


def pipelined(
    network: Network, demand: Demand, group: Group, fewest: float, seconds: float, *, moving: bool = True
) -> Schedule:
    """Returns a schedule whose trees use the switches that multicast; see `pipeline.pipelined` for the arguments.

    Raises:
        TimeUp: The time limit was reached.
    """
    deadline = time.monotonic() + seconds
    made = _grown(network, demand, group, fewest, deadline, moving=moving)
    if sum(len(p.targets) * p.count for p in demand.pieces) > _FEW_SENDS:
        return made
    return min(few_steps(network, demand, deadline), made, key=lambda s: s.total_rounds)


def _grown(
    network: Network, demand: Demand, group: Group, fewest: float, deadline: float, *, moving: bool = True
) -> Schedule:
    hubs = _Hubs(network)
    group, each = pipeline.fitting(hubs.network, hubs.group(group))
    whole = Demand(demand.name, hubs.network.ranks, demand.chunks, demand.root, demand.pieces)
    hops, ways = hubs.joined(
        pipeline.grow(hubs.network, whole, group, each, max(fewest, 1.0), pipeline.ANY_NUMBER, deadline)
    )
    used = [[b for e in way for b in each[e]] for way in ways]
    rooms = [hubs.network.bounds[b][1] for b, _ in group.bounds]
    lengths, placed = steps_of(hops, used, rooms, deadline - time.monotonic(), moving=moving)
    sends = (
        (step, (hop.chunk, *pair))
        for hop, step in zip(hops, placed, strict=True)
        for pair in hubs.pairs(ways[hop.edge])
    )
    return Schedule.of(lengths, group.spread(demand, sends))


def few_steps(network: Network, demand: Demand, end: float = math.inf) -> Schedule:
    """Returns a schedule in the fewest steps: each chunk reaches its targets by shortest ways over the emptiest bounds.

    Args:
        network: The network; every target can be reached.
        demand: The demand.
        end: The time limit, by `time.monotonic`.

    Raises:
        TimeUp: The time limit was reached.
    """
    used: list[Counter[int]] = []
    sends: list[tuple[int, Send]] = []
    order = sorted(range(demand.chunk_count), key=lambda c: c - demand.first[demand.piece_of[c]])
    for chunk in order:
        if time.monotonic() > end:
            raise TimeUp
        piece = demand.pieces[demand.piece_of[chunk]]
        away = network.distance[piece.source]
        farthest = max((away[t] for t in piece.targets), default=0)
        used += [Counter[int]() for _ in range(farthest - len(used))]
        needed: set[int] = {rank for rank in piece.targets if away[rank]}
        for step in range(farthest - 1, -1, -1):
            sent: set[tuple[int, int]] = set()  # of this chunk: ranks, and bounds that carry it once
            for rank in sorted(r for r in needed if away[r] == step + 1):
                _, _, parent, loaded = min(
                    _ways(network, rank, away, step, used[step], sent, needed), key=lambda way: way[:3]
                )
                used[step].update(loaded)
                sent.update((parent, b) for b in loaded if b in network.sent_once)
                sends.append((step, (chunk, parent, rank)))
                needed.add(parent)
    rounds = [
        max((math.ceil(count / Fraction(network.bounds[b][1])) for b, count in each.items()), default=0)
        for each in used
    ]
    return Schedule.of(rounds, sends)


def _ways(
    network: Network,
    rank: int,
    away: Sequence[int],
    step: int,
    used: Counter[int],
    sent: set[tuple[int, int]],
    needed: set[int],
) -> Iterator[tuple[float, bool, int, list[int]]]:
    """The ways to a rank by one that is `step` hops away: how full they make a bound, and the bounds that they load."""
    for e in network.incoming[rank]:
        parent = network.edges[e][0]
        if away[parent] == step:
            loaded = [b for b in network.bounds_of[e] if (parent, b) not in sent]
            full = max((float((used[b] + 1) / network.bounds[b][1]) for b in loaded), default=0.0)
            yield full, parent not in needed, parent, loaded


def within(network: Network, demand: Demand, group: Group, steps: int, rounds: int, seconds: float) -> Schedule | None:
    """Returns a schedule of at most so many steps and rounds; None if trees of a few kinds do not give one.

    Raises:
        TimeUp: The time limit was reached.
    """
    end = time.monotonic() + seconds
    made = few_steps(network, demand, end)
    if made.total_rounds > rounds or len(made.rounds) > steps:
        made = _grown(network, demand, group, float(rounds), end)
    return made if made.total_rounds <= rounds and len(made.rounds) <= steps else None


def fullest(network: Network, schedule: Schedule) -> Fraction:
    """Returns the rounds that the fullest bound needs for all sends of a schedule that adds nothing up."""
    if not network.sent_once:
        return pipeline.fullest(network, schedule)
    total: Counter[int] = Counter()
    for sends in schedule.steps:
        total.update(dict(enumerate(loads(network, sends))))
    return max((count / Fraction(network.bounds[b][1]) for b, count in total.items()), default=Fraction(0))


class _Hubs:
    """A network with hubs behind its ranks, in which the edges into a hub have the bounds that a multicast loads once.

    Attributes:
        network: It.
    """

    def __init__(self, network: Network) -> None:
        self._inner = network
        self._number: dict[tuple[int, frozenset[int]], int] = {}  # of the hub of a rank's edges with such bounds
        self._owner: dict[int, int] = {}
        through: list[Edge | None] = []  # for each edge, that from the hub
        for (src, dst), bounds in zip(network.edges, network.bounds_of, strict=True):
            once = network.sent_once.intersection(bounds)
            through.append(None)
            if once:
                hub = self._number.setdefault((src, once), network.ranks + len(self._number))
                self._owner[hub] = src
                through[-1] = (hub, dst)
        relation: list[tuple[list[Edge], Capacity]] = []
        for b, (members, chunks) in enumerate(network.bounds):
            if b in network.sent_once:
                hubs = [(src, hub) for (src, once), hub in self._number.items() if b in once]
                relation.append((hubs, chunks))
            relation.append(([through[e] or network.edges[e] for e in members if self._loads(b, through[e])], chunks))
        # An edge without further bounds has its own capacity.
        relation += [([way], network.capacity[e]) for e, way in enumerate(through) if way is not None]
        self.network = Network.of_relation(network.name, network.ranks + len(self._number), relation)

    def _loads(self, bound: int, way: Edge | None) -> bool:
        return way is None or bound not in self._inner.sent_once

    def group(self, group: Group) -> Group:
        """Returns the symmetries of this network that a group of the ranks gives; the trivial group if hubs differ."""
        inner, found = self._inner, list[tuple[int, ...]]()
        place = {frozenset(inner.bounds[b][0]): b for b in inner.sent_once}
        for element, edges in zip(group.elements, group.edges, strict=True):
            moved = {b: place.get(frozenset(edges[e] for e in inner.bounds[b][0])) for b in inner.sent_once}
            hubs: list[int] = []
            for src, once in self._number:
                to = frozenset(b for b in (moved[o] for o in once) if b is not None)
                if (element[src], to) not in self._number:
                    return trivial(self.network)
                hubs.append(self._number[element[src], to])
            found.append((*element, *hubs))
        return Group(self.network, tuple(found))

    def joined(self, hops: Sequence[Hop]) -> tuple[list[Hop], list[tuple[int, ...]]]:
        """Returns the hops of trees with those into and out of a hub as one.

        The edge of such a hop is the number of a way; these, as edges of this network, are the second value.
        """
        edges = self.network.edges
        onward: dict[int, list[int]] = {}  # from a hop into a hub to those out of it
        for i, hop in enumerate(hops):
            if edges[hop.edge][0] in self._owner:
                onward.setdefault(hop.before[0], []).append(i)
        number: dict[tuple[int, ...], int] = {}
        new_of: dict[int, int] = {}
        made: list[Hop] = []
        for i, hop in enumerate(hops):
            if edges[hop.edge][0] in self._owner or (edges[hop.edge][1] in self._owner and i not in onward):
                continue
            parts = onward.get(i, [])
            way = (hop.edge, *sorted(hops[p].edge for p in parts))
            before = tuple(new_of[b] for b in hop.before)
            new_of.update(dict.fromkeys((i, *parts), len(made)))
            made.append(Hop(hop.chunk, number.setdefault(way, len(number)), hop.turn, before))
        return made, list(number)

    def pairs(self, way: tuple[int, ...]) -> Iterator[Edge]:
        """Yields the pairs of ranks between which a way leads."""
        for e in way:
            src, dst = self.network.edges[e]
            if dst not in self._owner:
                yield self._owner.get(src, src), dst
