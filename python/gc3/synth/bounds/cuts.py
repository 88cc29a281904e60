"""Lower bounds without a solver: steps by distance; rounds by cuts, maximum flow and distances under prices.

All values are exact, in whole numbers and fractions, and each bound has a textual proof. Bounds on rounds hold for any
number of steps. `rounds` is for the given demand: divide by C for the paper's R/C.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from gc3 import _core
from gc3.support.maximum_flow import INFINITE, Flow
from gc3.synth.problem import ENDLESS
from gc3.synth.problem.demand import Demand
from gc3.synth.problem.network import UNREACHABLE, Network

Flags = npt.NDArray[np.bool_]
# A target, and what it needs: ranks and chunks.
Need: TypeAlias = "tuple[int, list[tuple[int, int]]]"

# Up to this many ranks, all cuts are tried.
_ENUMERATED = 10
_LEAST = 1e-9
_AT_ONCE = 1 << 19  # edges of sets of ranks
_LARGEST = 1 << 59  # of capacities and flows in 64 bits
_LISTED = 8  # ranks, one by one


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


def cut_bound(network: Network, demand: Demand, ranks: Iterable[int] | None = None, seconds: float = ENDLESS) -> Bound:
    """Returns the best bound by cuts: the data that must leave a set of ranks divided by the capacity out of it.

    For few ranks it tries all cuts. Otherwise it uses maximum flow: the best cut between any target and the sources it
    needs, or any source and the targets that need it; only of `ranks`, if others are their images under symmetries. At
    the time limit the best bound until then is returned.
    """
    chosen = frozenset(range(network.ranks) if ranks is None else ranks)
    if enumerates(network):
        return _every_cut(network, demand)
    best = Bound(Fraction(0), "nothing has to move")
    sides = [(demand, network, "reach")]
    if demand.routes:  # otherwise chunks may be copied on the way, so only the needs of one target add up
        sides.append((reverse(demand), network.reversed, "leave"))
    for side, where, verb in sides:
        needs = [(target, list(side.needed[target].items())) for target in sorted(chosen & side.needed.keys())]
        best = _sinks_bound(where, needs, best, verb, seconds)
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
    part_of = np.zeros(network.ranks, np.int64)
    for i, part in enumerate(parts):
        part_of[list(part)] = i
    src, dst = network.ends
    return room_of(network, np.flatnonzero(part_of[src] != part_of[dst]))


def room_of(network: Network, edges: Iterable[int]) -> Fraction:
    """Returns an upper bound on the chunks that cross some edges together in a round."""
    used = network.bounds_used(np.fromiter(edges, np.intp))
    return min(
        (sum((Fraction(network.bounds[int(b)][1]) for b in f[used[f]]), Fraction(0)) for f in network.families),
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
    inside = subsets(ranks)
    need = np.zeros(len(inside), np.int64)
    for piece in demand.pieces:
        if piece.targets:
            need += piece.count * (inside[:, piece.source] & ~inside[:, sorted(piece.targets)].all(axis=1))
    return narrowest(network, inside, need)


def subsets(size: int) -> Flags:
    """Returns all proper subsets of some numbers, each as a row of flags."""
    return (np.arange(1, (1 << size) - 1)[:, None] >> np.arange(size)) & 1 == 1


def narrowest(network: Network, inside: Flags, need: npt.NDArray[np.int64]) -> Bound:
    """Returns the best bound by what must leave sets of ranks, of which each is a row of flags."""
    room = rooms(network, inside)
    blocked = (room == 0) & (need > 0)
    if blocked.any():
        return Bound(Fraction(UNREACHABLE), f"nothing can leave {shown(_members(inside[blocked][0]))}")
    at = int(np.where(need > 0, need / np.maximum(room, _LEAST), 0.0).argmax())
    if need[at] == 0:
        return Bound(Fraction(0), "nothing has to move")
    return Bound(int(need[at]) / exact_room(network, inside[at]), f"what must leave {shown(_members(inside[at]))}")


def rooms(network: Network, inside: Flags) -> npt.NDArray[np.float64]:
    """Returns for rows of flags, one per rank, an upper bound on the chunks that can leave those ranks in a round."""
    src, dst = network.ends
    carried: npt.NDArray[np.float64] = np.array([float(chunks) for _, chunks in network.bounds], np.float64)
    found = np.zeros(len(inside))
    at_once = max(_AT_ONCE // max(len(src), 1), 1)
    if at_once == 1:  # all edges of many sets would fill the memory, and only few leave a set
        for i, row in enumerate(inside):
            used = carried * network.bounds_used(np.flatnonzero(row[src] & ~row[dst]))
            found[i] = min((used[f].sum() for f in network.families), default=0.0)
        return found
    for begin in range(0, len(inside), at_once):
        some = inside[begin : begin + at_once]
        crossing = some[:, src] & ~some[:, dst]
        by_bound: Flags = np.array([crossing[:, m].any(axis=1) for m in network.members], np.bool_)
        used: npt.NDArray[np.float64] = np.swapaxes(by_bound, 0, 1) * carried
        found[begin : begin + at_once] = np.min([used[:, f].sum(axis=1) for f in network.families], axis=0)
    return found


def exact_room(network: Network, inside: Flags) -> Fraction:
    """Returns what `rooms` does for a single set of ranks, exactly."""
    src, dst = network.ends
    return room_of(network, np.flatnonzero(inside[src] & ~inside[dst]))


def _members(inside: Flags) -> list[int]:
    return [int(r) for r in np.flatnonzero(inside)]


def shown(ranks: Iterable[int]) -> str:
    """Returns a list of ranks for proofs."""
    listed = sorted(ranks)
    return f"rank{'' if len(listed) == 1 else 's'} {numbered(listed)}"


def numbered(ranks: Sequence[int]) -> str:
    """Returns ascending numbers as text, many of them as ranges.

    >>> numbered([0, 1, 2, 7]), numbered([0, 2, *range(4, 64)])
    ('0, 1, 2, 7', '0, 2, 4-63')
    """
    if len(ranks) <= _LISTED:
        return ", ".join(map(str, ranks))
    ends = [i for i, r in enumerate(ranks) if r + 1 not in ranks[i + 1 : i + 2]]
    runs = ((ranks[begin], ranks[end]) for begin, end in zip([0, *(e + 1 for e in ends)], ends, strict=False))
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def _sinks_bound(network: Network, needs: Sequence[Need], best: Bound, verb: str, seconds: float) -> Bound:
    """The best cut between a target and the sources of what it needs, if it gives more than `best`.

    Dinkelbach's method: if a flow cannot carry all data in `best.rounds`, its minimum cut gives a larger bound.
    """
    if needs and best.rounds == 0:
        target, supply = needs[0]
        room = Fraction(sum(network.capacity[e] for e in network.incoming[target]))
        best = Bound(sum(count for _, count in supply) / max(room, Fraction(1)), f"what must {verb} rank {target}")
    deadline = time.monotonic() + seconds
    begin = 0
    while (found := _narrow_cut(network, needs, begin, best.rounds, deadline - time.monotonic())) is not None:
        begin, room, inside = found
        outside = shown(frozenset(range(network.ranks)) - inside)
        if room == 0:
            return Bound(Fraction(UNREACHABLE), f"what must {verb} {outside}")
        amount = sum(count for rank, count in needs[begin][1] if rank in inside)
        best = Bound(Fraction(amount * network.unit, room), f"what must {verb} {outside}")
    return best


def _narrow_cut(
    network: Network, needs: Sequence[Need], begin: int, rounds: Fraction, seconds: float
) -> tuple[int, int, frozenset[int]] | None:
    """The first need, from `begin` on, that takes more than these rounds: its index, the capacity of a cut, its ranks.

    The capacity is that of `Network.unit` rounds. None: there is none, or the time was over.
    """
    if seconds <= 0:
        return None
    vertices, arcs = network.graph
    times = rounds.denominator * network.unit
    most = max((sum(count for _, count in supply) for _, supply in needs), default=0)
    if max(sum(network.whole) * rounds.numerator, most * times) < _LARGEST:
        listed = [(tail, head, network.whole[b] if b >= 0 else -1) for tail, head, b in arcs]
        cut = _core.narrow_cut(network.ranks, vertices, listed, needs, begin, rounds.numerator, times, seconds)
        return None if cut is None else (cut[0], cut[1], frozenset(cut[2]))
    deadline = time.monotonic() + seconds
    for n in range(begin, len(needs)):
        if time.monotonic() > deadline:
            return None
        graph = Flow(vertices)
        for tail, head, b in arcs:
            graph.arc(tail, head, INFINITE if b < 0 else network.whole[b] * rounds.numerator)
        source = graph.vertex()
        target, supply = needs[n]
        for rank, count in supply:
            graph.arc(source, rank, count * times)
        needed = times * sum(count for _, count in supply)
        if graph.run(source, target, needed) < needed:
            side = graph.reachable(source)
            crossing = sum(network.whole[b] for tail, head, b in arcs if tail in side and head not in side)
            return n, crossing, frozenset(range(network.ranks)) & side
    return None


def fewest_single_rounds(network: Network, demand: Demand, target: int, most: int) -> int:
    """Returns the least T for which T steps of one round bring any one target all its data; most + 1 if there is none.

    On a divisible network, a schedule of T rounds can be cut into T such steps, however many steps it has. So this is a
    lower bound on the rounds of the whole demand.
    """
    supply = demand.needed.get(target, {})
    needed = sum(supply.values())
    if needed == 0:
        return 0
    least = max((network.distance[source][target] for source in supply), default=0)
    room = sum(network.capacity[e] for e in network.incoming[target])
    least = max(least, math.ceil(needed / Fraction(room)) if room else least)
    for steps in range(least, most + 1):
        graph, source, sink, _ = over_time(network, supply, {target: needed}, [1] * steps)
        if graph.run(source, sink) == needed:
            return steps
    return most + 1


def over_time(
    network: Network, supply: Mapping[int, int], wanted: Mapping[int, int], rounds: Sequence[int]
) -> tuple[Flow, int, int, dict[tuple[int, int], int]]:
    """Returns the network over time, a source for the supply, a sink for the demand, and the arcs of edges."""
    ranks, steps = network.ranks, len(rounds)
    graph = Flow(ranks * (steps + 1))
    source, sink = graph.vertex(), graph.vertex()
    distance = network.distance
    early = [min(distance[v][r] for v in supply) for r in range(ranks)]
    late = [min(distance[r][t] for t in wanted) for r in range(ranks)]
    for rank, count in supply.items():
        graph.arc(source, rank, count)
    for rank, count in wanted.items():
        graph.arc(steps * ranks + rank, sink, count)
    arcs: dict[tuple[int, int], int] = {}
    for s in range(steps):
        for r in range(ranks):
            if early[r] <= s and late[r] < steps - s:
                graph.arc(s * ranks + r, (s + 1) * ranks + r, 1 << 60)
        for e, (u, w) in enumerate(network.edges):
            if early[u] <= s and late[w] < steps - s:
                arcs[e, s] = graph.arc(s * ranks + u, (s + 1) * ranks + w, int(network.capacity[e] * rounds[s]))
    return graph, source, sink, arcs
