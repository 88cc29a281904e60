"""Schedules without a solver: greedy choices, and breadth-first balance.

Greedy: in every step of given rounds each rank receives as much as it can, the rarest chunks first.

Balance: each chunk reaches each rank in the fewest steps, with the load spread evenly over links. It applies if every
bound is of one edge. Then the arrivals at a rank in a step are independent of other ranks: they are a
bipartite flow from the arriving pieces to the edges that may bring them. The schedule has the fewest possible steps,
and on many regular networks the fewest rounds too.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from fractions import Fraction

from gc3.support.maximum_flow import Flow
from gc3.synth.problem import FOUND, Hurry, at_leisure
from gc3.synth.problem.demand import Demand, Send
from gc3.synth.problem.network import Network
from gc3.synth.problem.schedule import Schedule
from gc3.synth.problem.symmetry import Group
from gc3.synth.session import Answer, Instance, Method

_TRIES, _SENDS = 12, 20_000


class GreedyChoices(Method):
    """Greedy choices in single rounds, where a step for each round of the bound is allowed."""

    cost = 25

    def applies(self, instance: Instance) -> bool:
        """Returns whether chunks are copied, and the bound is no higher than the steps."""
        return not instance.demand.routes and instance.session.any_steps(instance.demand).rounds <= instance.steps

    def decide(self, instance: Instance) -> Answer | None:
        """Returns the schedule if one is found."""
        return chosen(instance, [1] * min(instance.steps, instance.rounds))


class Balance(Method):
    """Breadth-first balance."""

    cost = 30

    def applies(self, instance: Instance) -> bool:
        """Returns whether every piece goes to every rank and every bound is of one edge."""
        return not instance.demand.routes and balances(instance.network, instance.demand)

    def decide(self, instance: Instance) -> Answer | None:
        """Returns the schedule if it has few enough rounds."""
        schedule = balanced(instance.network, instance.demand, instance.group, instance.session.hurry)
        fits = schedule.total_rounds <= instance.rounds
        return Answer(FOUND, schedule, "breadth-first balance") if fits else None


def chosen(instance: Instance, rounds: Sequence[int], tries: int = _TRIES) -> Answer | None:
    """Returns a schedule with these rounds by greedy choices; None if none is found in a number of tries."""
    session, network, demand = instance.session, instance.network, instance.demand
    if demand.chunk_count * network.ranks > _SENDS:
        return None
    session.tell("making greedy choices")
    for attempt in range(tries):
        schedule = greedy(network, demand, rounds, session.seed * _TRIES + attempt, session.hurry)
        if schedule is not None:
            return Answer(FOUND, schedule, "greedy choices")
    return None


def greedy(
    network: Network, demand: Demand, rounds: Sequence[int], seed: int, hurry: Hurry = at_leisure
) -> Schedule | None:
    """Returns a schedule with these rounds; None if the greedy choices do not find one."""
    chance = random.Random(seed)  # noqa: S311 - nothing secret
    everyone = range(network.ranks)
    has: list[set[int]] = [set() for _ in everyone]
    wants: list[set[int]] = [set() for _ in everyone]
    holders = [1] * demand.chunk_count
    for i, piece in enumerate(demand.pieces):
        chunks = range(demand.first[i], demand.first[i + 1])
        has[piece.source].update(chunks)
        for target in piece.targets:
            wants[target].update(chunks)
    sends: list[tuple[int, Send]] = []
    order = list(everyone)
    for step, count in enumerate(rounds):
        hurry()
        free = network.carried(count)
        arrived: list[tuple[int, int]] = []
        chance.shuffle(order)
        for rank in order:
            taken = _take_in(network, rank, has, wants[rank], holders, free, chance)
            for chunk, e in taken:
                sends.append((step, (chunk, network.edges[e][0], rank)))
                holders[chunk] += 1
                arrived.append((rank, chunk))
        for rank, chunk in arrived:
            has[rank].add(chunk)
            wants[rank].discard(chunk)
    return None if any(wants) else Schedule.of(rounds, sends)


def _take_in(
    network: Network,
    rank: int,
    has: Sequence[set[int]],
    wanted: set[int],
    holders: Sequence[int],
    free: list[int],
    chance: random.Random,
) -> list[tuple[int, int]]:
    """Matches chunks with the edges into a rank, with augmenting paths where every bound is of one edge."""
    edges = [e for e in network.incoming[rank] if all(free[b] for b in network.bounds_of[e])]
    sources = {e: has[network.edges[e][0]] & wanted for e in edges}
    chunks = sorted(set[int]().union(*sources.values()))
    chance.shuffle(chunks)
    chunks.sort(key=holders.__getitem__)
    brought: dict[int, list[int]] = {e: [] for e in edges}
    room = {e: min(free[b] for b in network.bounds_of[e]) for e in edges}

    def place(chunk: int, tried: set[int]) -> bool:
        ways = [e for e in edges if e not in tried and chunk in sources[e]]
        if network.point_to_point:
            for e in ways:
                if len(brought[e]) < room[e]:
                    brought[e].append(chunk)
                    return True
            for e in ways:
                tried.add(e)
                for k, other in enumerate(brought[e]):
                    if place(other, tried):
                        brought[e][k] = chunk
                        return True
            return False
        for e in sorted(ways, key=lambda e: -min(free[b] for b in network.bounds_of[e])):
            if all(free[b] for b in network.bounds_of[e]):
                brought[e].append(chunk)
                for b in network.bounds_of[e]:
                    free[b] -= 1
                return True
        return False

    total = sum(room.values())
    placed = 0
    for chunk in chunks:
        placed += place(chunk, set())
        if placed == total and network.point_to_point:
            break
    return [(chunk, e) for e, listed in brought.items() for chunk in listed]


def balances(network: Network, demand: Demand) -> bool:
    """Returns whether every piece goes to every rank and every bound is of one edge."""
    return network.point_to_point and all(len(p.targets) == network.ranks - 1 for p in demand.pieces)


def balanced(network: Network, demand: Demand, group: Group, hurry: Hurry = at_leisure) -> Schedule:
    """Returns the breadth-first schedule of the fewest rounds; see `balances`."""
    steps = max(max(network.distance[p.source]) for p in demand.pieces)
    rounds = [0] * steps
    arrivals: list[list[tuple[int, dict[int, list[int]]]]] = [[] for _ in range(steps)]
    homes = sorted({home for home, _ in group.home})
    for rank in homes:
        for step in range(steps):
            hurry()
            pieces = [i for i, p in enumerate(demand.pieces) if network.distance[p.source][rank] == step + 1]
            if pieces:
                needed, brought = _arrive(network, demand, rank, pieces, step)
                rounds[step] = max(rounds[step], needed)
                arrivals[step].append((rank, brought))
    sends: list[tuple[int, Send]] = []
    for step, ranks in enumerate(arrivals):
        for rank, brought in ranks:
            for h, (home, element) in enumerate(group.home):
                if home != rank:
                    continue
                moved = group.elements[element]
                for e, chunks in brought.items():
                    src = moved[network.edges[e][0]]
                    sends += [(step, (group.chunk_image(demand, chunk, element), src, h)) for chunk in chunks]
    return Schedule.of(rounds, sends)


def _arrive(
    network: Network, demand: Demand, rank: int, pieces: list[int], step: int
) -> tuple[int, dict[int, list[int]]]:
    """The fewest rounds in which the pieces can arrive at a rank, and the chunks that then come over each edge."""
    edges = network.incoming[rank]
    needed = sum(demand.pieces[i].count for i in pieces)
    rounds = math.ceil(needed / Fraction(sum(network.capacity[e] for e in edges)))
    while True:
        graph = Flow(2 + len(pieces) + len(edges))
        arcs: list[tuple[int, int, int]] = []
        for k, i in enumerate(pieces):
            graph.arc(0, 2 + k, demand.pieces[i].count)
            from_source = network.distance[demand.pieces[i].source]
            for j, e in enumerate(edges):
                if from_source[network.edges[e][0]] == step:
                    arcs.append((graph.arc(2 + k, 2 + len(pieces) + j, demand.pieces[i].count), i, e))
        for j, e in enumerate(edges):
            graph.arc(2 + len(pieces) + j, 1, int(network.capacity[e] * rounds))
        if graph.run(0, 1) == needed:
            break
        rounds += 1
    brought: dict[int, list[int]] = {}
    place = {i: demand.first[i] for i in pieces}
    for arc, i, e in arcs:
        amount = graph.left[arc ^ 1]
        brought.setdefault(e, []).extend(range(place[i], place[i] + amount))
        place[i] += amount
    return rounds, brought
