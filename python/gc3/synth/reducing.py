"""Lower bounds for any all-reduce, not only for those built from a reduce-scatter and an all-gather.

There are two arguments. Both are for one chunk of the input, to which every rank contributes and whose sum it needs:

* Cuts: the sum elsewhere depends on every set of ranks, so at least one message leaves each set.
 * Parts: the ranks are partitioned into k parts, each treated as one rank. Take the first message after which some part
  knows of the contributions of all others. Until then each of the other k - 1 parts has sent a message; each of them
  receives one more afterwards. So 2 (k - 1) messages at least go from part to part.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np

from gc3.synth import cuts
from gc3.synth.cuts import Bound, Flags
from gc3.synth.network import UNREACHABLE, Network

_ALL_PARTITIONS = 7  # ranks of which every partition is tried
_ALL_UNIONS = 10  # nodes of which every union is tried


def allreduce_bound(network: Network) -> Bound:
    """Returns a proven lower bound on the rounds of an all-reduce of one chunk in any number of steps."""
    if network.ranks == 1:
        return Bound(Fraction(0), "there is no other rank")
    best = _by_cuts(network)
    for parts in _partitions(network):
        room = cuts.room_between(network, parts)
        if room == 0:
            return Bound(Fraction(UNREACHABLE), f"nothing crosses between {len(parts)} parts")
        least = 2 * (len(parts) - 1) / room
        if least > best.rounds:
            shown = "ranks" if len(parts) == network.ranks else f"parts ({_listed(parts)})"
            best = Bound(least, f"twice {len(parts) - 1} messages must go between {len(parts)} {shown}")
    return best


def _listed(parts: Sequence[Sequence[int]]) -> str:
    return " | ".join(", ".join(map(str, part)) for part in parts)


def _by_cuts(network: Network) -> Bound:
    ranks = network.ranks
    if cuts.enumerates(network):
        inside: Flags = (np.arange(1, (1 << ranks) - 1)[:, None] >> np.arange(ranks)) & 1 == 1
    else:
        alone = np.eye(ranks, dtype=bool)
        sets = [alone, *([_unions(network)] if network.nodes else [])]
        inside = np.concatenate([flags for some in sets for flags in (some, ~some)])
    at = int(cuts.rooms(network, inside).argmin())
    room = cuts.exact_room(network, inside[at])
    if room == 0:
        return Bound(Fraction(UNREACHABLE), f"nothing can leave {cuts.shown(np.flatnonzero(inside[at]).tolist())}")
    return Bound(1 / room, f"what must leave {cuts.shown(np.flatnonzero(inside[at]).tolist())}")


def _unions(network: Network) -> Flags:
    """Nodes, and if there are few, all of their proper unions."""
    nodes = sorted(set(network.nodes))
    member = np.array(network.nodes)
    if len(nodes) > _ALL_UNIONS:
        return np.array([member == node for node in nodes])
    chosen = (np.arange(1, (1 << len(nodes)) - 1)[:, None] >> np.arange(len(nodes))) & 1 == 1
    return chosen[:, np.searchsorted(nodes, member)]


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
