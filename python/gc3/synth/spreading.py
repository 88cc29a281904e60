"""A bound on the rounds of a broadcast of a given number of chunks: with the way of the last ones.

Bounds on R/C leave out that the last chunks, too, have to spread. Take a set of ranks without the root that all chunks
must enter, and that carries b chunks a round from outside. Then three facts hold of a schedule with R rounds:

* Nothing enters before the rounds of the shortest way there.
* A chunk that enters for the first time with j rounds left reaches every rank of the set. So j is at least the longest
  of the shortest ways inside, without the first hop.
* If a part of the set, such as a rank or a node, sends at most g copies to other parts in a round, a copy that enters
  with j rounds left becomes at most (1 + g)^j. So of n parts, all copies of a chunk that first enters with less than
  log n / log (1 + g) rounds left must become n, and those that enter in these last rounds become b (1 + g)^j each.

At most b chunks enter for the first time in each of the rounds before. A step of several rounds allows no more: in it a
part sends g r copies in r rounds, and (1 + g)^r is at least 1 + g r.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable, Iterator
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from gc3.support.words import counted
from gc3.synth import cuts
from gc3.synth.cuts import Bound
from gc3.synth.demand import Demand
from gc3.synth.network import Network

Flags = npt.NDArray[np.bool_]

_FEW = 8  # sets of one kind
_MOST_PARTS = 64
_FINE = 8  # growth is rounded up to multiples of its inverse


def applies(demand: Demand) -> bool:
    """Returns whether all other ranks need all chunks of one rank."""
    return len(demand.pieces) == 1 and len(demand.pieces[0].targets) == demand.ranks - 1 > 0


def bound(network: Network, demand: Demand, *, inverse: bool = False) -> Bound:
    """Returns a proven lower bound on the rounds of a demand that `applies`, a whole number.

    Args:
        network: The network.
        demand: The demand.
        inverse: Whether they stand for a reduction, of which the proof then speaks.
    """
    piece = demand.pieces[0]
    best = Bound(Fraction(0), "nothing has to move")
    for inside in _sets(network, piece.source):
        found = _of_set(network, piece.source, piece.count, inside, inverse=inverse)
        if found is not None:
            best = max(best, found, key=lambda b: b.rounds)
    return best


def _sets(network: Network, root: int) -> Iterator[Flags]:
    """All ranks but the root or its group on a level, and the farthest ranks and groups."""
    away = network.distance[root]
    ranks = np.arange(network.ranks)
    for groups in (tuple(range(network.ranks)), *(groups for _, groups in network.levels)):
        of_rank = np.array(groups)
        yield of_rank != of_rank[root]
        farthest = sorted(range(network.ranks), key=away.__getitem__, reverse=True)
        others = dict.fromkeys(groups[r] for r in farthest if groups[r] != groups[root])
        for group in list(others)[:_FEW]:
            yield of_rank[ranks] == group


def _of_set(network: Network, root: int, chunks: int, inside: Flags, *, inverse: bool) -> Bound | None:
    src, dst = network.ends
    entering = np.flatnonzero(~inside[src] & inside[dst])
    room = cuts.room_of(network, entering)
    members: list[int] = np.flatnonzero(inside).tolist()
    if room == 0 or not members:
        return None
    before = min(network.distance[root][r] for r in members) - 1
    least = _longest_way(network, inside) - 1
    growths = [(1, Fraction(0))] if network.in_switch else list(_growths(network, inside))
    few = math.ceil(chunks / room)

    def suffices(rounds: int) -> bool:
        return all(_most(rounds, least, parts, growth) * room >= chunks for parts, growth in growths)

    many = few + least + 1
    while not suffices(many):
        many *= 2
    rounds = few + bisect.bisect_left(range(few, many), x=True, key=suffices)
    verb, ends = ("leave", "the first ones must gather") if inverse else ("reach", "the last ones must spread")
    proof = f"{counted(chunks, 'chunk')} must {verb} {cuts.shown(members)}"
    if before > 0:
        proof += ", which are not next to the root"
    if rounds > few:
        proof += f", and {ends}"
    return Bound(Fraction(before + rounds), proof)


def _longest_way(network: Network, inside: Flags) -> int:
    """The hops from outside of a set to its farthest rank."""
    src, dst = network.ends
    reached: Flags = np.logical_not(inside)
    hops = 0
    while not np.all(reached):
        further: Flags = np.array(reached)
        further[dst[reached[src]]] = True
        if np.array_equal(further, reached):
            break
        reached, hops = further, hops + 1
    return hops


def _growths(network: Network, inside: Flags) -> Iterator[tuple[int, Fraction]]:
    """The parts of a set, and the most copies that one of them sends to others in a round."""
    src, dst = network.ends
    for groups in (tuple(range(network.ranks)), *(groups for _, groups in network.levels)):
        of_rank = np.array(groups)
        parts = sorted(set(of_rank[inside].tolist()))
        if len(parts) > _MOST_PARTS:
            continue
        within = inside[src] & inside[dst] & (of_rank[src] != of_rank[dst])
        by_part = _edges_by(of_rank[src], within, parts)
        growth = max((cuts.room_of(network, edges) for edges in by_part), default=Fraction(0))
        yield len(parts), Fraction(math.ceil(growth * _FINE), _FINE)  # few steps, small numbers


def _edges_by(group: npt.NDArray[np.int64], chosen: Flags, parts: Iterable[int]) -> Iterator[npt.NDArray[np.int64]]:
    for part in parts:
        edges = np.flatnonzero(chosen & (group == part))
        if len(edges):
            yield edges


def _most(rounds: int, least: int, parts: int, growth: Fraction) -> Fraction:
    """The most chunks that enter a set in these rounds, for each that enters it in a round."""
    if parts > 1 and growth == 0:  # all parts are reached from outside
        return min(Fraction(rounds, parts), Fraction(max(rounds - least, 0)))
    late, copies, reached = 0, Fraction(1), Fraction(0)
    while late < rounds and copies < parts:
        late, copies, reached = late + 1, copies * (1 + growth), reached + copies
    return max(rounds - max(late, least), 0) + min(reached / parts, Fraction(max(late - least, 0)))
