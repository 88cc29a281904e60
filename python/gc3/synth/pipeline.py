"""Bandwidth-optimal schedules at scale: trees that load all links equally, with chunks pipelined over them.

Every chunk gets a tree from its source to its targets. Trees are grown one after the other over the least loaded links;
a link costs more the fuller its bounds are. Then sends are assigned to rounds, those with the longest way to go first:
a chunk is sent on as soon as it has arrived and there is room. With many chunks, the number of rounds approaches the
load of the fullest bound plus a few for the depth of the trees.

Links between nodes are few and therefore expensive, so a tree enters each node as rarely as possible: data crosses once
and is distributed inside. So hierarchical algorithms need no special form.

With a group of automorphisms, only one source of each orbit is planned; the sends of its images follow.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace

from gc3.synth.demand import Demand
from gc3.synth.limits import Hurry, at_leisure
from gc3.synth.network import Network
from gc3.synth.schedule import Schedule, Send
from gc3.synth.symmetry import Group

_PASSES = 6
_FEW_SENDS = 3000
_LOSS, _MOST_ROUNDS = 0.04, 32  # as a fraction of a bound's capacity in a step
_STEEP = 6.0  # the cost of a full bound over that of an empty one, as a power of ten over the whole load


@dataclass(frozen=True, slots=True)
class _Hop:
    """A send of a tree, with the hop that brings the chunk to its sender, and the longest path from there."""

    chunk: int
    edge: int
    before: int
    height: int


def pipelined(network: Network, demand: Demand, group: Group, fewest: float, hurry: Hurry = at_leisure) -> Schedule:
    """Returns a schedule with about as many rounds as the fullest bound requires.

    Every step has one round, or a few if bandwidths are fractions, of which a single round would lose a part.

    Args:
        network: The network; every target can be reached.
        demand: What is asked for.
        group: Automorphisms of both.
        fewest: A lower bound on the rounds, to which loads are compared.
        hurry: Raises TimeUp at the time limit.

    Raises:
        TimeUp: The time limit was reached.
    """
    group, weights = _fitting(network, group)
    hops = _grow(network, demand, group, weights, max(fewest, 1.0), hurry)
    count = _rounds_of_a_step(network)
    carried = network.carried(count)
    rounds = _place(hops, weights, [carried[b] for b, _ in group.bounds], hurry)
    total = max(rounds, default=-1) + 1
    sends: list[tuple[int, Send]] = []
    for hop, step in zip(hops, rounds, strict=True):
        source = demand.pieces[demand.piece_of[hop.chunk]].source
        src, dst = network.edges[hop.edge]
        for home, element in group.home:
            if home == source:
                moved = group.elements[element]
                sends.append((step, (group.chunk_image(demand, hop.chunk, element), moved[src], moved[dst])))
    return Schedule.of([count] * total, sends)


def _fitting(network: Network, group: Group) -> tuple[Group, list[list[tuple[int, int]]]]:
    """The largest group for which a send and all its simultaneous images fit in one round.

    Ranks that share a NIC or an uplink are often images of each other, and cannot all send over it in one round.
    """
    for smaller in group.descending():
        weights = _weights(network, smaller)
        room = [network.bounds[b][1] for b, _ in smaller.bounds]
        if all(c <= room[o] for pairs in weights for o, c in pairs):
            return smaller, weights
    raise AssertionError("an edge carries a chunk in a round")


def _rounds_of_a_step(network: Network) -> int:
    """The fewest rounds in which no bound loses more than a small part of its capacity."""
    return next(
        count
        for count in range(1, _MOST_ROUNDS + 1)
        if count == _MOST_ROUNDS
        or all(int(chunks * count) >= (1 - _LOSS) * chunks * count for _, chunks in network.bounds)
    )


def _weights(network: Network, group: Group) -> list[list[tuple[int, int]]]:
    """For each edge the bounds, one of each orbit, that the images of a send over it load, and how often."""
    number = {b: i for i, (b, _) in enumerate(group.bounds)}
    orbit: dict[frozenset[int], int] = {}
    for b, _ in group.bounds:
        for moved in group.edges:
            orbit[frozenset(moved[e] for e in network.bounds[b][0])] = number[b]
    sizes = [size for _, size in group.bounds]
    found: list[list[tuple[int, int]]] = []
    for bounds in network.bounds_of:
        counts: dict[int, int] = {}
        for b in bounds:
            o = orbit[frozenset(network.bounds[b][0])]
            counts[o] = counts.get(o, 0) + 1
        # The images of a send are
        # H
        #  sends, each in the image of the bound: these are distributed over the orbit's bounds.
        found.append([(o, c * group.order // sizes[o]) for o, c in counts.items()])
    return found


def _grow(
    network: Network, demand: Demand, group: Group, weights: list[list[tuple[int, int]]], fewest: float, hurry: Hurry
) -> list[_Hop]:
    """Trees for all chunks of the first source of each orbit."""
    room = [float(network.bounds[b][1]) for b, _ in group.bounds]
    load = [0.0] * len(room)
    homes = {home for home, _ in group.home}
    own = [c for c, i in enumerate(demand.piece_of) if demand.pieces[i].source in homes]
    # Chunks of different sources alternate, so that none finds all good paths taken.
    own.sort(key=lambda c: c - demand.first[demand.piece_of[c]])

    def cost(e: int) -> float:
        return sum(c / room[o] * 10.0 ** (_STEEP * load[o] / (room[o] * fewest)) for o, c in weights[e])

    def add(tree: list[_Hop], times: int) -> None:
        for hop in tree:
            for o, count in weights[hop.edge]:
                load[o] += times * count

    trees: dict[int, list[_Hop]] = {}
    sends = sum(len(demand.pieces[demand.piece_of[c]].targets) for c in own)
    for _ in range(_PASSES if sends <= _FEW_SENDS else 1):  # later passes know the load of the other trees
        for chunk in own:
            hurry()
            piece = demand.pieces[demand.piece_of[chunk]]
            add(trees.get(chunk, []), -1)
            prices = [cost(e) for e in range(len(network.edges))]
            trees[chunk] = _tree(network, chunk, piece.source, piece.targets, prices)
            add(trees[chunk], 1)
    hops: list[_Hop] = []
    for tree in trees.values():
        first = len(hops)
        hops += [replace(hop, before=hop.before + first if hop.before >= 0 else -1) for hop in tree]
    return hops


def _tree(
    network: Network,
    chunk: int,
    source: int,
    targets: frozenset[int],
    prices: list[float],
) -> list[_Hop]:
    """The tree that grows by the cheapest path from itself to a target, again and again."""
    brought: dict[int, int] = {source: -1}  # rank -> its hop
    order: list[tuple[int, int]] = []  # edge, hop before
    left = set(targets)
    cost = {source: 0.0}  # from the current tree
    via: dict[int, int] = {}
    todo = [(0.0, source)]
    while left:
        so_far, rank = heapq.heappop(todo)
        if so_far > cost[rank]:
            continue
        if rank in left:
            way: list[int] = []
            place = rank
            while place not in brought:
                way.append(via[place])
                place = network.edges[via[place]][0]
            for e in reversed(way):
                src, dst = network.edges[e]
                order.append((e, brought[src]))
                brought[dst] = len(order) - 1
                cost[dst] = 0.0
                heapq.heappush(todo, (0.0, dst))
                left.discard(dst)
            continue
        for e in network.outgoing[rank]:
            target = network.edges[e][1]
            further = so_far + prices[e]
            if further < cost.get(target, float("inf")):
                cost[target] = further
                via[target] = e
                heapq.heappush(todo, (further, target))
    height = [1] * len(order)
    for i in range(len(order) - 1, -1, -1):
        before = order[i][1]
        if before >= 0:
            height[before] = max(height[before], height[i] + 1)
    return [_Hop(chunk, e, before, h) for (e, before), h in zip(order, height, strict=True)]


def _place(hops: list[_Hop], weights: list[list[tuple[int, int]]], room: list[int], hurry: Hurry) -> list[int]:
    """The round of each hop: the earliest with room; hops with the longest way to go are assigned first."""
    after: dict[int, list[int]] = {}
    for i, hop in enumerate(hops):
        after.setdefault(hop.before, []).append(i)
    rounds = [0] * len(hops)
    ready = sorted(after.get(-1, ()), key=lambda i: -hops[i].height)
    step = 0
    while ready:
        hurry()
        free = list(room)
        later: list[int] = []
        sent: list[int] = []
        for i in ready:
            pairs = weights[hops[i].edge]
            if all(free[o] >= c for o, c in pairs):
                for o, c in pairs:
                    free[o] -= c
                rounds[i] = step
                sent.append(i)
            else:
                later.append(i)
        for i in sent:
            later += after.get(i, ())
        ready = sorted(later, key=lambda i: -hops[i].height)
        step += 1
    return rounds
