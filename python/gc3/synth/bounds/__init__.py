"""Lower bounds on the steps and the rounds of a demand, each with its proof.

Here are those of collectives as a whole: of any that reduces, and of a broadcast of a given number of chunks.

Not only those that are built from a reduction and a distribution are bounded, by two arguments:

* Cuts: a sum depends on all contributions. So for every chunk with a contributor in a set of ranks and a target outside
  of it, at least one message leaves the set.
* Messages: take the first message of a chunk after which some rank knows all contributions. Until then each of the
  other contributors has sent a message; each of the other targets receives one more afterwards. For an all-reduce this
  also holds for the parts of a partition of the ranks, each treated as one rank: with k parts, 2 (k - 1) messages at
  least go from part to part. This does not hold where switches multicast and add up, which carry several messages
  as one.

For a broadcast, bounds on R/C leave out that the last chunks, too, have to spread. Take a set of ranks without the root
that all chunks must enter, and that carries b chunks a round from outside. Then three facts hold of a schedule with R
rounds:

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
from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np

from gc3.support.words import counted
from gc3.synth.bounds import cuts
from gc3.synth.bounds.cuts import Bound, Flags
from gc3.synth.problem.demand import Demand, Item
from gc3.synth.problem.network import UNREACHABLE, Network

_ALL_PARTITIONS = 7  # ranks of which every partition is tried
_ALL_UNIONS = 10  # groups of a level of which every union is tried
_MOST_SETS = 1024  # of ranks that contribute to a chunk or need it
_FEW = 8  # sets of one kind
_MOST_PARTS = 64
_FINE = 8  # growth is rounded up to multiples of its inverse


def allreduce_bound(network: Network) -> Bound:
    """Returns a proven lower bound on the rounds of an all-reduce of one chunk in any number of steps."""
    if network.ranks == 1:
        return Bound(Fraction(0), "there is no other rank")
    everyone = frozenset(range(network.ranks))
    best = _by_cuts(network, [Item(everyone, everyone)])
    for parts in _partitions(network) if not network.in_switch else ():
        room = cuts.room_between(network, parts)
        if room == 0:
            return Bound(Fraction(UNREACHABLE), f"nothing crosses between {len(parts)} parts")
        least = 2 * (len(parts) - 1) / room
        if least > best.rounds:
            listed = " | ".join(map(cuts.numbered, parts))
            shown = "ranks" if len(parts) == network.ranks else f"parts ({listed})"
            best = Bound(least, f"twice {len(parts) - 1} messages must go between {len(parts)} {shown}")
    return best


def combining_bound(network: Network, items: Sequence[Item]) -> Bound:
    """Returns a proven lower bound on the rounds of any algorithm that makes these sums, in any number of steps."""
    if all(item.after <= item.before and len(item.before) == 1 for item in items):
        return Bound(Fraction(0), "nothing has to move")
    best = _by_cuts(network, items)
    if network.in_switch:
        return best
    messages = sum(
        len(item.before) + len(item.after) - 1 - bool(item.before & item.after) for item in items if item.after
    )
    room = cuts.room_between(network, [[rank] for rank in range(network.ranks)])
    if room and messages / room > best.rounds:
        return Bound(messages / room, f"{messages} messages must go between {network.ranks} ranks")
    return best


def _by_cuts(network: Network, items: Sequence[Item]) -> Bound:
    ranks = network.ranks
    if cuts.enumerates(network):
        inside = cuts.subsets(ranks)
    else:
        involved = list({s: None for item in items for s in (item.before, item.after) if 0 < len(s) < ranks})
        some = [
            np.eye(ranks, dtype=bool),
            *(_unions(groups) for _, groups in network.levels),
            *([np.array([[r in s for r in range(ranks)] for s in involved[:_MOST_SETS]])] if involved else []),
        ]
        inside = np.concatenate([flags for each in some for flags in (each, ~each)])
    need = np.zeros(len(inside), np.int64)
    for item, count in Counter(items).items():
        if item.after:
            leaves = inside[:, sorted(item.before)].any(axis=1) & ~inside[:, sorted(item.after)].all(axis=1)
            need += count * leaves
    return cuts.narrowest(network, inside, need)


def _unions(groups: Sequence[int]) -> Flags:
    """The groups of a level, and if there are few, all of their proper unions."""
    several = sorted(set(groups))
    member = np.array(groups)
    if len(several) > _ALL_UNIONS:
        return np.array([member == group for group in several])
    return cuts.subsets(len(several))[:, np.searchsorted(several, member)]


def _partitions(network: Network) -> Iterator[list[list[int]]]:
    if network.ranks <= _ALL_PARTITIONS:
        yield from (parts for parts in _every_partition(range(network.ranks)) if len(parts) > 1)
        return
    yield from cuts.plain_parts(network)


def _every_partition(ranks: Sequence[int]) -> Iterator[list[list[int]]]:
    if not ranks:
        yield []
        return
    *others, last = ranks
    for parts in _every_partition(others):
        yield [*parts, [last]]
        for i, part in enumerate(parts):
            yield [*parts[:i], [*part, last], *parts[i + 1 :]]


def is_broadcast(demand: Demand) -> bool:
    """Returns whether all other ranks need all chunks of one rank."""
    return len(demand.pieces) == 1 and len(demand.pieces[0].targets) == demand.ranks - 1 > 0


def broadcast_bound(network: Network, demand: Demand, *, inverse: bool = False) -> Bound:
    """Returns a proven lower bound on the rounds of such a demand, a whole number; `inverse`: of a reduction."""
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
        by_part = (np.flatnonzero(within & (of_rank[src] == part)) for part in parts)
        growth = max((cuts.room_of(network, edges) for edges in by_part if len(edges)), default=Fraction(0))
        yield len(parts), Fraction(math.ceil(growth * _FINE), _FINE)  # few steps, small numbers


def _most(rounds: int, least: int, parts: int, growth: Fraction) -> Fraction:
    """The most chunks that enter a set in these rounds, for each that enters it in a round."""
    if parts > 1 and growth == 0:  # all parts are reached from outside
        return min(Fraction(rounds, parts), Fraction(max(rounds - least, 0)))
    late, copies, reached = 0, Fraction(1), Fraction(0)
    while late < rounds and copies < parts:
        late, copies, reached = late + 1, copies * (1 + growth), reached + copies
    return max(rounds - max(late, least), 0) + min(reached / parts, Fraction(max(late - least, 0)))
