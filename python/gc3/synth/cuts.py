"""Lower bounds without a solver: steps by distance; rounds by cuts, maximum flow and distances under prices.

All values are exact, in whole numbers and fractions, and each bound has a textual proof. Bounds on rounds hold for any
number of steps. `rounds` is for the given demand: divide by C for the paper's R/C.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from gc3.synth.demand import Demand
from gc3.synth.limits import Hurry, TimeUp, at_leisure
from gc3.synth.maxflow import INFINITE, Flow
from gc3.synth.network import UNREACHABLE, Network

Flags = npt.NDArray[np.bool_]

# Up to this many ranks, all cuts are tried.
_ENUMERATED = 10
_LEAST = 1e-9


@dataclass(frozen=True, slots=True)
class Bound:
    """A proven lower bound on the rounds of a demand.

    Attributes:
        rounds: The smallest number of rounds.
        proof: The proof, as text.
    """

    rounds: Fraction
    proof: str


def least_steps(network: Network, demand: Demand) -> int:
    """Returns the steps that the farthest target needs; `UNREACHABLE` if one cannot be reached."""
    return max((network.distance[p.source][t] for p in demand.pieces for t in p.targets), default=0)


def cut_bound(network: Network, demand: Demand, ranks: Iterable[int] | None = None, hurry: Hurry = at_leisure) -> Bound:
    """Returns the best bound by cuts: the data that must leave a set of ranks divided by the capacity out of it.

    For few ranks it tries all cuts. Otherwise it uses maximum flow: the best cut between any target and the sources it
    needs, or any source and the targets that need it.

    Args:
        network: The network.
        demand: The demand.
        ranks: The targets and sources to try, if others are their images under symmetries; None: all.
        hurry: Ends the search for a better bound at the time limit.
    """
    chosen = frozenset(range(network.ranks) if ranks is None else ranks)
    if enumerates(network):
        return _every_cut(network, demand)
    best = Bound(Fraction(0), "nothing has to move")
    backward = reverse(demand)
    for side, where in ((demand, network), (backward, network.reversed)):
        if side is backward and not demand.routes:
            continue  # chunks may be copied on the way, so only the needs of one target add up
        for target in sorted({t for p in side.pieces for t in p.targets} & chosen):
            if best.rounds:
                try:
                    hurry()
                except TimeUp:
                    return best
            found = _sink_bound(where, side, target, best.rounds)
            if found is not None:
                into = "reach" if side is demand else "leave"
                best = Bound(found[0], f"what must {into} {shown(found[1])}")
    return best


def parts_bound(network: Network, demand: Demand, parts: Sequence[Sequence[int]]) -> Bound:
    """Returns the bound by the data that must enter each part of the ranks: a chunk enters every part that needs it."""
    part_of = {rank: i for i, part in enumerate(parts) for rank in part}
    need = sum(p.count * len({part_of[t] for t in p.targets} - {part_of[p.source]}) for p in demand.pieces)
    if need == 0:
        return Bound(Fraction(0), "nothing has to move")
    room = room_between(network, parts)
    names = {len(set(groups)): f"{name}s" for name, groups in network.levels} | {network.ranks: "ranks"}
    what = f"{need} arrivals at the {len(parts)} {names[len(parts)]}"
    return Bound(need / room if room else Fraction(UNREACHABLE), what)


def room_between(network: Network, parts: Iterable[Iterable[int]]) -> Fraction:
    """Returns an upper bound on the chunks that can go from part to part in a round."""
    part_of = {rank: i for i, part in enumerate(parts) for rank in part}
    return room_of(network, (e for e, (src, dst) in enumerate(network.edges) if part_of[src] != part_of[dst]))


def room_of(network: Network, edges: Iterable[int]) -> Fraction:
    """Returns an upper bound on the chunks that cross some edges together in a round."""
    used = {b for e in edges for b in network.bounds_of[e]}
    return min(
        (sum((Fraction(network.bounds[b][1]) for b in f if b in used), Fraction(0)) for f in families(network)),
        default=Fraction(0),
    )


def plain_parts(network: Network) -> list[list[list[int]]]:
    """Returns the single ranks, and the groups of each level: nodes, racks, and so on."""
    found = [[[rank] for rank in range(network.ranks)]]
    for _, groups in network.levels:
        found.append([[r for r, g in enumerate(groups) if g == group] for group in sorted(set(groups))])
    return found


def enumerates(network: Network) -> bool:
    """Returns whether there are few enough ranks to try all cuts."""
    return network.ranks <= _ENUMERATED


def reverse(demand: Demand) -> Demand:
    """Returns a demand of single targets with the direction of every piece reversed."""
    pieces = [
        type(p)(next(iter(p.targets), p.source), frozenset({p.source}) if p.targets else frozenset(), p.count)
        for p in demand.pieces
    ]
    return Demand(demand.name, demand.ranks, demand.chunks, demand.root, tuple(pieces))


def distance_bound(network: Network, demand: Demand) -> Bound:
    """Returns the bound by distances: each chunk occupies as many edges as the distance to its target.

    Edges are weighted equally, and by their capacity; the better bound is returned.
    """
    best = Fraction(0)
    total = Fraction(sum(chunks for _, chunks in network.bounds))
    need = sum(p.count * max((network.distance[p.source][t] for t in p.targets), default=0) for p in demand.pieces)
    if network.point_to_point and total:
        best = need / total
    return Bound(best, "the sum of all distances over what all links carry")


def _every_cut(network: Network, demand: Demand) -> Bound:
    ranks = network.ranks
    if ranks == 1:
        return Bound(Fraction(0), "there is no other rank")
    inside = (np.arange(1, (1 << ranks) - 1)[:, None] >> np.arange(ranks)) & 1 == 1
    need = np.zeros(len(inside), np.int64)
    for piece in demand.pieces:
        if piece.targets:
            need += piece.count * (inside[:, piece.source] & ~inside[:, sorted(piece.targets)].all(axis=1))
    room = rooms(network, inside)
    blocked = (room == 0) & (need > 0)
    if blocked.any():
        return Bound(Fraction(UNREACHABLE), f"nothing can leave {shown(_members(inside[blocked][0]))}")
    ratio = np.where(need > 0, need / np.maximum(room, _LEAST), 0.0)
    at = int(ratio.argmax())
    if need[at] == 0:
        return Bound(Fraction(0), "nothing has to move")
    exact = exact_room(network, inside[at])
    return Bound(int(need[at]) / exact, f"what must leave {shown(_members(inside[at]))}")


def rooms(network: Network, inside: Flags) -> npt.NDArray[np.float64]:
    """Returns for rows of flags, one per rank, an upper bound on the chunks that can leave those ranks in a round."""
    src, dst = (np.array([e[i] for e in network.edges], np.int64) for i in (0, 1))
    crossing = inside[:, src] & ~inside[:, dst]
    return np.min([_room(network, family, crossing) for family in families(network)], axis=0)


def exact_room(network: Network, inside: Flags) -> Fraction:
    """Returns what `rooms` does for a single set of ranks, exactly."""
    return room_of(network, (e for e, (src, dst) in enumerate(network.edges) if inside[src] and not inside[dst]))


def families(network: Network) -> list[list[int]]:
    """Returns sets of bounds that cover all edges; the sum over the bounds that a cut crosses limits its capacity."""
    ordered = network.ordered_bounds
    most = max((len(o) for o in ordered), default=0)
    return [sorted({o[min(k, len(o) - 1)] for o in ordered}) for k in range(most)]


def _room(network: Network, family: Sequence[int], crossing: Flags) -> npt.NDArray[np.float64]:
    room = np.zeros(len(crossing))
    for b in family:
        members, chunks = network.bounds[b]
        room += float(chunks) * crossing[:, list(members)].any(axis=1)
    return room


def _members(inside: Flags) -> list[int]:
    return [int(r) for r in np.flatnonzero(inside)]


def shown(ranks: Iterable[int]) -> str:
    """Returns a list of ranks for proofs."""
    listed = sorted(ranks)
    if len(listed) == 1:
        return f"rank {listed[0]}"
    return f"ranks {', '.join(map(str, listed))}"


def capacity_graph(network: Network, scale: int) -> Flow:
    """Returns the network as a graph for maximum flow: bounds carry `scale` times `network.whole`."""
    vertices, arcs = network.graph
    graph = Flow(vertices)
    for tail, head, bound in arcs:
        graph.arc(tail, head, INFINITE if bound < 0 else network.whole[bound] * scale)
    return graph


def _sink_bound(
    network: Network, demand: Demand, target: int, above: Fraction
) -> tuple[Fraction, frozenset[int]] | None:
    """The best cut between `target` and the sources of what it needs, if it gives more than `above`.

    Dinkelbach's method: if a flow cannot carry all data in `least` rounds, its minimum cut gives a larger bound.
    """
    supply: dict[int, int] = {}
    for piece in demand.pieces:
        if target in piece.targets:
            supply[piece.source] = supply.get(piece.source, 0) + piece.count
    needed = sum(supply.values())
    found: frozenset[int] | None = None
    room = Fraction(sum(network.capacity[e] for e in network.incoming[target]))
    least = above if above > 0 else needed / max(room, Fraction(1))
    if above == 0:
        found = frozenset({target})
    while True:
        graph = capacity_graph(network, least.numerator)
        source = graph.vertex()
        for rank, count in supply.items():
            graph.arc(source, rank, count * least.denominator * network.unit)
        if graph.run(source, target) >= needed * least.denominator * network.unit:
            return None if found is None else (least, found)
        side = graph.reachable(source)
        crossing = 0
        for vertex in side:
            for arc in graph.arcs[vertex]:
                if arc % 2 == 0 and vertex != source and graph.head[arc] not in side:
                    crossing += (graph.left[arc] + graph.left[arc ^ 1]) // least.numerator  # it is a multiple
        inside = sum(count for rank, count in supply.items() if rank in side)
        if crossing == 0:
            return Fraction(UNREACHABLE), frozenset(range(network.ranks)) - side
        least = Fraction(inside * network.unit, crossing)
        found = frozenset(range(network.ranks)) - side
