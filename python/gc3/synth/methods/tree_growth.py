"""Bandwidth-optimal schedules at scale: trees that load all links equally, with chunks pipelined over them.

Every chunk gets a tree from its source to its targets. Trees are grown one after the other over the least loaded links;
a link costs more the fuller its bounds are. Then sends are assigned to rounds, those with the longest way to go first:
a chunk is sent on as soon as it has arrived and there is room. With many chunks, the number of rounds approaches the
load of the fullest bound plus a few for the depth of the trees.

Links between nodes are few and therefore expensive, so a tree enters each node as rarely as possible: data crosses once
and is distributed inside. So hierarchical algorithms need no special form.

With a group of automorphisms, only one source of each orbit is planned; the sends of its images follow.

Switches may multicast the branches of trees. Between a rank and those that it reaches by such a switch stands a hub in
a second network: what the rank sends crosses the edge to its hub once, and the edges from there to each receiver. So
the methods that grow trees need to know nothing of switches. A hub takes no time: the edge to it and those from it are
one hop of the schedule, in one step.

A reduction is the inverse: its network is reversed, and there a sum is a multicast.

For many chunks these are compared with packed trees. Reductions and distributions then take place at the same time: as
overlapped halves, or for an all-reduce, over pairs of trees.
"""

from __future__ import annotations

import itertools
import math
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from gc3 import _core
from gc3.synth import result
from gc3.synth.methods import tree_packing
from gc3.synth.problem import ENDLESS, FOUND, TimeUp
from gc3.synth.problem.demand import Demand, Send
from gc3.synth.problem.network import Capacity, Edge, Network
from gc3.synth.problem.schedule import Hop, Schedule, loads, multicasts, overlapped, steps_of
from gc3.synth.problem.symmetry import MANY_RANKS, Group, trivial
from gc3.synth.result import Result
from gc3.synth.session import Answer, Instance, Method, Session

_PASSES = 6
_FEW_SENDS = 3000
_FOR_PEERS = 7 / 8  # of the threadblocks of a rank, each of which sends to one peer and receives from one
ANY_NUMBER = 1 << 30
_FEW_ARRIVALS = 20_000
_FEW_TO_GROW = 1 << 20  # of one source of each orbit
_LARGE = 100_000_000  # of the effort of packing: some seconds
_FOR_PACKING = 0.5  # of the time that is left, if there is a schedule
_FEW_TO_PAIR = 20_000
_LONG = 10_000  # denominators


def pipelined(
    network: Network,
    demand: Demand,
    group: Group,
    fewest: float,
    seconds: float = math.inf,
    *,
    halves: int = 1,
    moving: bool = True,
) -> Schedule:
    """Returns a schedule with about as many rounds as the fullest bound requires.

    Every step has one round, or a few if bandwidths are fractions, of which a single round would lose a part.

    Args:
        network: The network; every target can be reached.
        demand: What is asked for.
        group: Automorphisms of both.
        fewest: A lower bound on the rounds, to which loads are compared.
        seconds: The time limit.
        halves: The number of such schedules in a program, which share the threadblocks of a rank.
        moving: See `schedule.placed`.
    """
    deadline = time.monotonic() + seconds
    group, loads = fitting(network, group)
    peers = int(network.threadblocks * _FOR_PEERS) // halves or ANY_NUMBER
    hops = grow(network, demand, group, loads, max(fewest, 1.0), peers, deadline)
    bandwidths = [network.bounds[b][1] for b, _ in group.bounds]
    lengths, placed = steps_of(hops, loads, bandwidths, deadline - time.monotonic(), moving=moving)
    sends = ((step, (hop.chunk, *network.edges[hop.edge])) for hop, step in zip(hops, placed, strict=True))
    return Schedule.of(lengths, group.spread(demand, sends))


def fullest_of_edges(network: Network, schedule: Schedule) -> Fraction:
    """Returns the rounds that the fullest bound needs for all sends of a schedule."""
    used = [network.edge_index[src, dst] for sends in schedule.steps for _, src, dst in sends]
    load = np.bincount(np.array(used, np.int64), minlength=len(network.edges))
    loads = (int(load[list(members)].sum()) / Fraction(chunks) for members, chunks in network.bounds)
    return max(loads, default=Fraction(0))


def fitting(network: Network, group: Group) -> tuple[Group, list[list[int]]]:
    """Returns the largest group for which a send and its simultaneous images fit in one round, and the loads of edges.

    Ranks that share a NIC or an uplink are often images of each other, and cannot all send over it in one round.
    """
    # On large networks a group that is cut down step by step ends as the trivial one.
    first = [group, group.moving] if network.ranks >= MANY_RANKS else []
    for smaller in itertools.chain(first, group.descending()):
        loads = _loads(network, smaller)
        room = [network.bounds[b][1] for b, _ in smaller.bounds]
        if all(count <= room[o] for listed in loads.values() for o, count in Counter(listed).items()):
            return smaller, [loads[first] for first in smaller.edge_orbits]
    raise AssertionError("an edge carries a chunk in a round")


def _loads(network: Network, group: Group) -> dict[int, list[int]]:
    """For the first edge of each orbit the orbits of bounds that the images of a send over it load, as often as each.

    The images are as many as the group has elements, each in the image of a bound. They are distributed evenly over the
    bounds of its orbit.
    """
    sizes = [size for _, size in group.bounds]
    return {
        edge: [
            orbit
            for orbit, count in Counter(group.bound_orbits[b] for b in network.bounds_of[edge]).items()
            for _ in range(count * group.order // sizes[orbit])
        ]
        for edge in set(group.edge_orbits)
    }


def grow(
    network: Network, demand: Demand, group: Group, loads: list[list[int]], fewest: float, peers: int, deadline: float
) -> list[Hop]:
    """Returns the sends of trees for all chunks of the first source of each orbit."""
    homes = {home for home, _ in group.home}
    own = [c for c, i in enumerate(demand.piece_of) if demand.pieces[i].source in homes]
    # Chunks of different sources alternate, so that none finds all good paths taken.
    own.sort(key=lambda c: c - demand.first[demand.piece_of[c]])
    number = {i: n for n, i in enumerate(dict.fromkeys(demand.piece_of[c] for c in own))}
    wanted = [(demand.pieces[i].source, sorted(demand.pieces[i].targets)) for i in number]
    sends = sum(len(demand.pieces[demand.piece_of[c]].targets) for c in own)
    passes = _PASSES if sends <= _FEW_SENDS else 1  # later passes know the load of the other trees
    room = [float(network.bounds[b][1]) for b, _ in group.bounds]
    order = [number[demand.piece_of[c]] for c in own]
    rank_orbits = [home for home, _ in group.home]

    def trees_of(
        some: Sequence[tuple[int, list[int]]], order: Sequence[int], passes: int, peers: int, known: Sequence[int]
    ) -> list[list[tuple[int, int]]]:
        left = min(deadline - time.monotonic(), ENDLESS)
        trees = _core.grow_trees(
            network.ranks, network.edges, loads, room, fewest, group.edge_orbits, rank_orbits, peers, known, some,
            order, passes, left,
        )  # fmt: skip
        if trees is None:
            raise TimeUp
        return trees

    reached: dict[int, set[int]] = {}
    for source, targets in wanted:
        reached.setdefault(source, set()).update(targets)
    known: set[int] = set()
    if len(wanted) > len(reached) and max(map(len, reached.values())) > peers:
        # Each piece would go straight to another peer. One tree for all of a rank's pieces finds few that reach all.
        every = [(source, sorted(targets)) for source, targets in reached.items()]
        grown = trees_of(every, range(len(every)), 1, peers, ())
        known.update(group.edge_orbits[edge] for tree in grown for edge, _ in tree)
        peers = 0
    trees = trees_of(wanted, order, passes, peers, sorted(known))
    hops: list[Hop] = []
    for chunk, tree in zip(own, trees, strict=True):
        first, turn = len(hops), chunk - demand.first[demand.piece_of[chunk]]
        hops += [Hop(chunk, edge, turn, (first + before,) if before >= 0 else ()) for edge, before in tree]
    return hops


def _grown(
    network: Network, demand: Demand, group: Group, fewest: float, deadline: float, *, moving: bool = True
) -> Schedule:
    hubs = _Hubs(network)
    group, each = fitting(hubs.network, hubs.group(group))
    whole = Demand(demand.name, hubs.network.ranks, demand.chunks, demand.root, demand.pieces)
    hops, ways = hubs.joined(grow(hubs.network, whole, group, each, max(fewest, 1.0), ANY_NUMBER, deadline))
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
    """Returns a schedule in the fewest steps: all chunks take shortest ways over the emptiest bounds."""
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


class MulticastTrees(Method):
    """Trees whose branches a switch multicasts; no other method knows of these."""

    cost = 10
    multicasts = True

    def applies(self, instance: Instance) -> bool:
        """Returns whether multicasts help."""
        return multicasts(instance.network, instance.demand)

    def decide(self, instance: Instance) -> Answer | None:
        """Returns the schedule if trees of a few kinds give one, or that what one rank needs takes more rounds."""
        session, network, demand = instance.session, instance.network, instance.demand
        session.tell("growing trees that switches multicast")
        end = time.monotonic() + session.left
        made = few_steps(network, demand, end)
        if not instance.fits(made):
            made = _grown(network, demand, instance.group, float(instance.rounds), end)
        if instance.fits(made):
            return Answer(FOUND, made, "trees that switches multicast")
        return instance.below(session.sink_bound(demand, instance.steps))


def fullest(network: Network, schedule: Schedule) -> Fraction:
    """Returns the rounds that the fullest bound needs for all sends of a schedule that adds nothing up."""
    if not network.sent_once:
        return fullest_of_edges(network, schedule)
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


def growing(where: Session, wanted: Demand, fewest: float, halves: int = 1) -> Schedule:
    """Returns a schedule of trees that are grown for each chunk, and use the switches that multicast where these help.

    No schedule has less than `fewest` rounds. So many `halves` are in a program; see `pipelined`.
    """
    network, group = where.network, where.group(wanted)
    if multicasts(network, wanted):
        deadline = time.monotonic() + where.left
        made = _grown(network, wanted, group, fewest, deadline, moving=where.moving)
        if sum(len(p.targets) * p.count for p in wanted.pieces) > _FEW_ARRIVALS:
            return made
        return min(few_steps(network, wanted, deadline), made, key=lambda s: s.total_rounds)
    return pipelined(network, wanted, group, fewest, where.left, halves=halves, moving=where.moving)


NEAR = Fraction(101, 100)  # relative to the bound: nothing better is searched for


@dataclass(frozen=True, slots=True)
class Planned:
    """A schedule over trees."""

    schedule: Schedule
    # What its rounds over the chunks of a source tend to with more chunks, if that is known.
    ratio: Fraction | None = None
    packed: bool = False  # whether packed trees were made


def many_chunks(where: Session, wanted: Demand, halves: int) -> Planned:
    """Returns the schedule of a demand with about the fewest rounds, in any number of steps.

    So many `halves` are in a program; see `pipelined`.
    """
    key = (id(where.network), wanted.name, wanted.root, wanted.chunks)
    known = where.forests.get(key)
    if known is None or where.moving:
        return _searched(where, wanted, halves, key)
    return Planned(
        tree_packing.schedule(where.network, wanted, known, where.left, moving=False), known.ratio, packed=True
    )


def _searched(where: Session, wanted: Demand, halves: int, key: tuple[int, str, int, int]) -> Planned:
    """Keeps packed trees by the key."""
    where.tell("growing trees")
    # On large networks the linear program for such a bound takes longer than the trees, which often reach that by cuts.
    late = wanted.routes and wanted.ranks >= MANY_RANKS
    bound = (where.by_cuts(wanted) if late else where.any_steps(wanted)).rounds
    group = where.group(wanted)
    sends = sum(len(p.targets) * p.count for p in wanted.pieces)
    alike = tree_packing.applies(wanted)
    grown: Schedule | None = None
    # For few chunks, trees grown for each of them may need fewer rounds. Packed ones know nothing of multicasts.
    in_switch = multicasts(where.network, wanted)
    if in_switch or not alike or sends <= _FEW_TO_GROW * group.order:
        grown = growing(where, wanted, float(bound), halves)
        if late:
            where.any_steps(wanted, taken=grown.total_rounds)
        if in_switch and alike:
            return Planned(grown, fullest(where.network, grown) / wanted.pieces[0].count)
        if in_switch or not alike or grown.total_rounds <= NEAR * bound:
            return Planned(grown)
        load = fullest(where.network, grown)
        if load <= NEAR * bound and tree_packing.effort(where.network, wanted) > _LARGE:
            # Packed trees would need as many rounds, because of their depth, and take long.
            return Planned(grown, load / wanted.pieces[0].count)
    where.tell("packing trees")
    left = where.left if grown is None else _FOR_PACKING * where.left
    forest = tree_packing.best(where.network, wanted, bound / wanted.pieces[0].count, left)
    if grown is None:
        where.hurry()
    if forest is None:
        return Planned(grown or growing(where, wanted, float(bound), halves))
    packed = tree_packing.schedule(where.network, wanted, forest, where.left, moving=where.moving)
    if grown is not None and grown.total_rounds < packed.total_rounds:
        return Planned(grown, forest.ratio, packed=True)
    where.forests[key] = forest
    return Planned(packed, forest.ratio, packed=True)


@dataclass(frozen=True, slots=True)
class Overlap:
    """A result that is better than a composition."""

    result: Result
    how: str  # the method
    composed: bool  # whether it still consists of the two halves


def overlapped_halves(session: Session, made: Result, how: str) -> Overlap | None:
    """Returns a result, found by the method `how`, with its phases overlapped; None if that has no fewer rounds."""
    session.tell("overlapping")
    problem, whole = made.problem, made.schedule
    schedule = overlapped(
        made.network, problem.demands[-1], problem.contents, whole, session.left, moving=session.moving
    )
    if schedule.total_rounds >= made.schedule.total_rounds:
        return None
    method, colon, more = how.partition(":")
    more += " or less" if "tends to" in more else ""
    return Overlap(result.whole(made.network, made.problem, schedule), f"{method}, overlapped{colon}{more}", True)


def best_overlap(session: Session, made: Result, enough: Fraction, ratio: Fraction | None, how: str) -> Overlap | None:
    """Returns the best result with fewer rounds than a reduction followed by a distribution; None if none was found.

    The search ends with an R/C of `enough`. If the composition's limit of R/C for many chunks, the ratio, is known and
    not above that, pairs of trees may save a few rounds, but not with many chunks.
    """
    found: Overlap | None = None
    fewest = made.schedule.total_rounds
    try:
        found = overlapped_halves(session, made, how)
        fewest = fewest if found is None else found.result.schedule.total_rounds
        limited = ratio is None or ratio > enough or made.schedule.send_count <= _FEW_TO_PAIR
        if made.collective == "allreduce" and limited and fewest > enough * made.chunks:
            paired = _paired(session, made)
            if paired is not None and paired.result.schedule.total_rounds < fewest:
                found = paired
    except TimeUp:
        pass  # what was found counts
    return found


def _paired(session: Session, made: Result) -> Overlap | None:
    session.tell("pairing trees")
    found = tree_packing.best_pairs(
        made.network, session.group(made.problem.demands[-1]), session.solvers, session.left
    )
    if found is None:
        return None
    ratio = found.ratio
    shown = ratio if ratio.denominator <= _LONG else f"about {float(ratio):.6f}"
    schedule = tree_packing.schedule_of_pairs(made.network, made.chunks, found, session.left, moving=session.moving)
    how = f"pairs of trees: with more chunks R/C tends to {shown}"
    return Overlap(result.whole(made.network, made.problem, schedule), how, False)
