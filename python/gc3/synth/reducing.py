"""Lower bounds for any collective that reduces, not only for those built from a reduction and a distribution.

There are two arguments:

* Cuts: a sum depends on all contributions. So for every chunk with a contributor in a set of ranks and a target outside
  of it, at least one message leaves the set.
* Messages: take the first message of a chunk after which some rank knows all contributions. Until then each of the
  other contributors has sent a message; each of the other targets receives one more afterwards. For an all-reduce this
  also holds for the parts of a partition of the ranks, each treated as one rank: with k parts, 2 (k - 1) messages at
  least go from part to part. This does not hold where switches multicast and add up, which
  carry several messages as one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np

from gc3.synth import cuts
from gc3.synth.cuts import Bound, Flags
from gc3.synth.network import UNREACHABLE, Network
from gc3.synth.problem import Item

_ALL_PARTITIONS = 7  # ranks of which every partition is tried
_ALL_UNIONS = 10  # groups of a level of which every union is tried
_MOST_SETS = 1024  # of ranks that contribute to a chunk or need it
_LEAST = 1e-9


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
            shown = "ranks" if len(parts) == network.ranks else f"parts ({_listed(parts)})"
            best = Bound(least, f"twice {len(parts) - 1} messages must go between {len(parts)} {shown}")
    return best


def _listed(parts: Sequence[Sequence[int]]) -> str:
    return " | ".join(map(cuts.numbered, parts))


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
        inside: Flags = (np.arange(1, (1 << ranks) - 1)[:, None] >> np.arange(ranks)) & 1 == 1
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
    room = cuts.rooms(network, inside)
    blocked = (room == 0) & (need > 0)
    if blocked.any():
        shown = cuts.shown(np.flatnonzero(inside[blocked][0]).tolist())
        return Bound(Fraction(UNREACHABLE), f"nothing can leave {shown}")
    at = int(np.where(need > 0, need / np.maximum(room, _LEAST), 0.0).argmax())
    if need[at] == 0:
        return Bound(Fraction(0), "nothing has to move")
    proof = f"what must leave {cuts.shown(np.flatnonzero(inside[at]).tolist())}"
    return Bound(int(need[at]) / cuts.exact_room(network, inside[at]), proof)


def _unions(groups: Sequence[int]) -> Flags:
    """The groups of a level, and if there are few, all of their proper unions."""
    several = sorted(set(groups))
    member = np.array(groups)
    if len(several) > _ALL_UNIONS:
        return np.array([member == group for group in several])
    chosen = (np.arange(1, (1 << len(several)) - 1)[:, None] >> np.arange(len(several))) & 1 == 1
    return chosen[:, np.searchsorted(several, member)]


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
