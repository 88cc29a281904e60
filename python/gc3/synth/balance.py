"""Breadth-first balance: each chunk reaches each rank in the fewest steps, with the load spread evenly over links.

Applies if every bound is of one edge. Then the arrivals at a rank in a step are independent of other ranks: they are a
bipartite flow from the arriving pieces to the edges that may bring them. The schedule has the fewest possible steps,
and on many regular networks the fewest rounds too.
"""

from __future__ import annotations

import math
from fractions import Fraction

from gc3.synth.demand import Demand
from gc3.synth.limits import Hurry, at_leisure
from gc3.synth.maxflow import Flow
from gc3.synth.network import Network
from gc3.synth.schedule import Schedule, Send
from gc3.synth.symmetry import Group


def applies(network: Network, demand: Demand) -> bool:
    """Returns whether every piece goes to every rank and every bound is of one edge."""
    return network.point_to_point and all(len(p.targets) == network.ranks - 1 for p in demand.pieces)


def balanced(network: Network, demand: Demand, group: Group, hurry: Hurry = at_leisure) -> Schedule:
    """Returns the breadth-first schedule of the fewest rounds; see `applies`."""
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
