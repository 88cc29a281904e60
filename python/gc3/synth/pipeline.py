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

import itertools
import math
import time
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from gc3 import _core
from gc3.synth.demand import Demand
from gc3.synth.limits import ENDLESS, TimeUp
from gc3.synth.network import Network
from gc3.synth.placing import Hop, steps_of
from gc3.synth.schedule import Schedule
from gc3.synth.symmetry import MANY_RANKS, Group

_PASSES = 6
_FEW_SENDS = 3000
_FOR_PEERS = 7 / 8  # of the threadblocks of a rank, each of which sends to one peer and receives from one
ANY_NUMBER = 1 << 30


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
        moving: See `placing.placed`.

    Raises:
        TimeUp: The time limit was reached.
    """
    deadline = time.monotonic() + seconds
    group, loads = fitting(network, group)
    peers = int(network.threadblocks * _FOR_PEERS) // halves or ANY_NUMBER
    hops = grow(network, demand, group, loads, max(fewest, 1.0), peers, deadline)
    bandwidths = [network.bounds[b][1] for b, _ in group.bounds]
    lengths, placed = steps_of(hops, loads, bandwidths, deadline - time.monotonic(), moving=moving)
    sends = ((step, (hop.chunk, *network.edges[hop.edge])) for hop, step in zip(hops, placed, strict=True))
    return Schedule.of(lengths, group.spread(demand, sends))


def fullest(network: Network, schedule: Schedule) -> Fraction:
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
    """Returns the sends of trees for all chunks of the first source of each orbit.

    Raises:
        TimeUp: The time limit was reached.
    """
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
