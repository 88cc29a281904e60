"""The network as in SCCL (001 section 3.2.1): ranks, edges, and bounds on the load of sets of edges per round.

In its graph, switches are vertices: few arcs allow what an arc for each pair of ports would. A switch takes what leaves
any of its ports to any other port, but not back to the rank or node that it came from. So a port reaches all others
except some that follow each other. Above the other ports lies a binary tree of vertices, of which each reaches a range
of them, and a port is joined to the ranges before and behind those that it does not reach. That makes O(n log n) arcs
for n ports instead of n^2, and nothing more may flow.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from gc3 import errors, topologies
from gc3.topologies import Topology, bounds
from gc3.topologies.relation import carried_once, rates

Edge: TypeAlias = "tuple[int, int]"
# Chunks in a round: whole numbers are ints. The capacity of several rounds is rounded down as a whole.
Capacity: TypeAlias = "int | Fraction"
# What a group is, and the group of each rank.
Level: TypeAlias = "tuple[str, tuple[int, ...]]"

Numbers: TypeAlias = "npt.NDArray[np.int64]"

UNREACHABLE = bounds.UNREACHABLE
MOST_PAIRS = 1 << 20  # that communicate: of 1,024 ranks which all reach each other


@dataclass(frozen=True)
class Network:
    """The pairs of ranks that can communicate, and how much in a round.

    Attributes:
        name: Its name in messages.
        ranks: Number of ranks.
        edges: The pairs that can communicate, (from, to), in ascending order.
        bounds: Sets of edges, as indices into `edges`, with the chunks that they carry together in a round; in r
            rounds of a step r times as many, rounded down. Every edge is in at least one.
        levels: Nested groups of ranks, the smallest first: nodes, and for example racks. Each level has a name and the
            group of each rank. Empty if there is only one node.
        in_switch: Whether switches multicast a chunk to several ranks, or add up chunks of several ranks, as one
            message.
        sent_once: The bounds, by number, that such a message loads once where it leaves its rank: what a rank sends of
            a chunk in a step to several ranks.
        received_once: Those that it loads once where it reaches its rank: what a rank receives of a chunk in a step
            from several ranks, to be added.
        threadblocks: How many a rank holds at once, which limits its peers; 0: not known.
    """

    name: str
    ranks: int
    edges: tuple[Edge, ...]
    bounds: tuple[tuple[tuple[int, ...], Capacity], ...]
    levels: tuple[Level, ...] = ()
    in_switch: bool = False
    sent_once: frozenset[int] = frozenset()
    received_once: frozenset[int] = frozenset()
    threadblocks: int = 0

    @staticmethod
    def of_relation(
        name: str,
        ranks: int,
        relation: Iterable[tuple[Iterable[Edge], Capacity]],
        nodes: Sequence[int] = (),
        above: Iterable[Level] = (),
        *,
        sent_once: Collection[int] = (),
        received_once: Collection[int] = (),
    ) -> Network:
        """Returns the network of a bandwidth relation; pairs with a bound of zero cannot communicate.

        Args:
            name: Its name in messages.
            ranks: Number of ranks.
            relation: Sets of pairs of ranks, each with the chunks that they carry together in a round.
            nodes: The node of each rank, if there are several.
            above: Levels of groups of nodes, the smallest first. Those that add nothing to the one before are left out.
            sent_once: The sets of the relation, by number, that a multicast loads once.
            received_once: Those that a sum of several ranks' chunks loads once.

        Raises:
            gc3.UserError: The relation names a rank that does not exist, a bound is negative, or levels are not nested.

        >>> Network.of_relation("pair", 2, [([(0, 1)], 2), ([(1, 0)], 1)]).edges
        ((0, 1), (1, 0))
        """
        sets = [(_codes(name, ranks, list(pairs)), chunks) for pairs, chunks in relation]
        for _, chunks in sets:
            if not isinstance(chunks, Fraction):
                errors.whole(chunks, f"the bound of a set of links of '{name}'")
            elif chunks < 0:
                raise errors.error("BadArgument", f"the bound of a set of links of '{name}' is {chunks}")
        closed = _union([codes for codes, chunks in sets if chunks == 0])
        found = np.setdiff1d(_union([codes for codes, _ in sets]), closed, assume_unique=True)
        edges = tuple(zip((found // ranks).tolist(), (found % ranks).tolist(), strict=True))
        least: dict[tuple[int, ...], Capacity] = {}
        plain: tuple[set[tuple[int, ...]], ...] = (set(), set())  # members of sets that every single message loads
        for i, (codes, chunks) in enumerate(sets):
            open_codes = np.setdiff1d(codes, closed, assume_unique=True) if len(closed) else codes
            if len(open_codes):
                members: tuple[int, ...] = tuple(np.searchsorted(found, open_codes).tolist())
                exact = int(chunks) if chunks == int(chunks) else chunks
                least[members] = min(exact, least.get(members, exact))
                for end, once in enumerate((sent_once, received_once)):
                    if i not in once or len({edges[e][end] for e in members}) == len(members):
                        plain[end].add(members)
        once = [frozenset(b for b, members in enumerate(least) if members not in single) for single in plain]
        levels = _nested(name, [("node", tuple(nodes)), *above])
        return Network(
            name, ranks, edges, tuple(least.items()), levels, any(once), sent_once=once[0], received_once=once[1]
        )

    @staticmethod
    def of(topology: Topology, chunk_bytes_per_s: float | None = None) -> Network:
        """Returns the network of a topology, with its bandwidths as they are.

        A topology's own `bounds` apply if no bandwidth is given, see `gc3.topologies.relation`.

        Args:
            topology: The machine.
            chunk_bytes_per_s: The bandwidth that carries one chunk per round; by default that of the slowest lane.

        Raises:
            gc3.UserError: Too many pairs communicate.
        """
        if topology.most_pairs > MOST_PAIRS:
            why = f"more than {MOST_PAIRS:,} pairs of ranks of '{topology.name}' reach each other: --hierarchical and "
            why += "`gc3 synth best` find schedules that one rank stands for"
            raise errors.error("BadArgument", why)
        relation: Iterable[tuple[Iterable[Edge], Capacity]]
        if topology.bounds is not None and chunk_bytes_per_s is None:
            relation = ((b.pairs, b.chunks) for b in topologies.relation(topology))
        else:
            relation = rates(topology, chunk_bytes_per_s)
        (_, nodes), *above = topology.rank_levels
        rows = [(tuple(pairs), chunks) for pairs, chunks in relation]
        joined = (topology.link_class(fabric.link_class) for fabric in topology.fabrics)
        in_switch = any(c.multicast_efficiency for c in joined)
        sent, received = carried_once(topology, [pairs for pairs, _ in rows])
        made = Network.of_relation(
            topology.name, topology.rank_count, rows, nodes, above, sent_once=sent, received_once=received
        )
        return replace(made, in_switch=in_switch, threadblocks=topology.threadblocks)

    @property
    def nodes(self) -> tuple[int, ...]:
        """The node of each rank; empty if there is only one."""
        return self.levels[0][1] if self.levels else ()

    @cached_property
    def point_to_point(self) -> bool:
        """Whether every bound is of one edge, so that edges are independent."""
        return all(len(members) == 1 for members, _ in self.bounds)

    @cached_property
    def divisible(self) -> bool:
        """Whether a step of several rounds carries no more than as many steps of one.

        This holds if edges are independent and carry whole chunks.
        """
        return self.point_to_point and self.unit == 1

    @cached_property
    def unit(self) -> int:
        """The rounds in which every bound carries a whole number of chunks."""
        return math.lcm(*(Fraction(chunks).denominator for _, chunks in self.bounds))

    @cached_property
    def whole(self) -> tuple[int, ...]:
        """The load that each bound carries in `unit` rounds."""
        return tuple(int(chunks * self.unit) for _, chunks in self.bounds)

    def carried(self, rounds: int) -> list[int]:
        """Returns the chunks that each bound carries in a step of this many rounds."""
        return [int(chunks * rounds) for _, chunks in self.bounds]

    def load(self, edges: Sequence[int], *, adds: bool = False) -> tuple[int, ...]:
        """Returns the bounds that a chunk loads over edges in a step, each as often as it does.

        The edges have one sender, or if the chunk `adds` to others, one receiver.
        """
        once = self.received_once if adds else self.sent_once
        loaded = [b for e in edges for b in self.bounds_of[e]]
        return (*(b for b in loaded if b not in once), *{b: None for b in loaded if b in once})

    @cached_property
    def capacity(self) -> tuple[Capacity, ...]:
        """The load that each edge carries in a round if nothing else is sent."""
        edges, bounds = self.uses
        ascending = sorted({chunks for _, chunks in self.bounds} | {UNREACHABLE})
        place = {chunks: i for i, chunks in enumerate(ascending)}
        least = np.full(len(self.edges), len(ascending) - 1)
        np.minimum.at(least, edges, np.array([place[chunks] for _, chunks in self.bounds], np.int64)[bounds])
        return tuple(map(ascending.__getitem__, least.tolist()))

    @cached_property
    def bounds_of(self) -> tuple[tuple[int, ...], ...]:
        """The bounds that each edge is in."""
        edges, bounds = self.uses
        order = np.lexsort((bounds, edges))
        return _grouped(edges, bounds[order], len(self.edges))

    @cached_property
    def members(self) -> tuple[npt.NDArray[np.int32], ...]:
        """The edges of each bound."""
        return tuple(np.array(members, np.int32) for members, _ in self.bounds)

    @cached_property
    def uses(self) -> tuple[Numbers, Numbers]:
        """Edges and bounds, a pair for each bound of each edge: by edge, and from its sender to its receiver.

        The order of the bounds of an edge is known as far as their shape determines it.
        """
        src, dst = self.ends
        edges = np.concatenate([*self.members, np.zeros(0, np.int32)]).astype(np.int64)
        bounds = np.repeat(np.arange(len(self.bounds)), [len(m) for m in self.members])
        sources, targets = (
            np.bincount(np.unique(bounds * self.ranks + end[edges]) // self.ranks, minlength=len(self.bounds))
            for end in (src, dst)
        )
        shape = sources / (sources + targets)
        order = np.lexsort((bounds, shape[bounds], edges))
        return edges[order], bounds[order]

    @cached_property
    def outgoing(self) -> tuple[tuple[int, ...], ...]:
        """The edges that leave each rank."""
        return self._by_end(0)

    @cached_property
    def incoming(self) -> tuple[tuple[int, ...], ...]:
        """The edges that reach each rank."""
        return self._by_end(1)

    @cached_property
    def edge_index(self) -> dict[Edge, int]:
        """The number of each edge."""
        return {edge: i for i, edge in enumerate(self.edges)}

    @cached_property
    def distance(self) -> tuple[tuple[int, ...], ...]:
        """Steps from each rank to each; `UNREACHABLE` if there is no path."""
        onward = [[self.edges[e][1] for e in out] for out in self.outgoing]
        return tuple(bounds.distances(onward, start) for start in range(self.ranks))

    @cached_property
    def reversed(self) -> Network:
        """The network with every edge reversed, bounds included; the network itself if that changes nothing."""
        src, dst = self.ends
        order = np.lexsort((src, dst))  # of the edges, by their reversed ends
        number = np.argsort(order)
        members = [np.sort(number[m]) for m in self.members]
        alike = np.array_equal(dst[order], src) and np.array_equal(src[order], dst)
        others = {(m.astype(np.int32).tobytes(), chunks) for m, (_, chunks) in zip(members, self.bounds, strict=True)}
        if alike and others == {(m, self.bounds[b][1]) for m, b in self.bound_of_members.items()}:
            received = {members[b].astype(np.int32).tobytes() for b in self.received_once}
            if received == {m for m, b in self.bound_of_members.items() if b in self.sent_once}:
                return self
        edges = tuple(zip(dst[order].tolist(), src[order].tolist(), strict=True))
        bounds = tuple((tuple(m.tolist()), chunks) for m, (_, chunks) in zip(members, self.bounds, strict=True))
        once = self.received_once, self.sent_once
        return replace(self, edges=edges, bounds=bounds, sent_once=once[0], received_once=once[1])

    @cached_property
    def ends(self) -> tuple[Numbers, Numbers]:
        """The senders and the receivers of the edges."""
        return np.array([src for src, _ in self.edges], np.int64), np.array([dst for _, dst in self.edges], np.int64)

    @cached_property
    def edge_numbers(self) -> npt.NDArray[np.int32]:
        """The number of the edge from each rank to each; -1 if there is none."""
        found = np.full((self.ranks, self.ranks), -1, np.int32)
        found[self.ends] = np.arange(len(self.edges))
        return found

    @cached_property
    def edge_kinds(self) -> npt.NDArray[np.uint64]:
        """Numbers that are equal for edges with equal bounds; if every bound is of one edge, only for these."""
        number: dict[tuple[int, Capacity], int] = {}
        found = np.zeros(len(self.edges), np.uint64)
        for members, (_, chunks) in zip(self.members, self.bounds, strict=True):
            kind = number.setdefault((len(members), chunks), len(number))
            found[members] += np.uint64(pow(3, kind, 1 << 64))  # sums of these differ, as a rule
        return found

    @cached_property
    def bound_of_members(self) -> dict[bytes, int]:
        """The bounds by their members, as an ascending array of 32-bit numbers."""
        return {np.sort(m).tobytes(): b for b, m in enumerate(self.members)}

    @cached_property
    def ordered_bounds(self) -> tuple[tuple[int, ...], ...]:
        """The bounds of each edge from its sender to its receiver, see `uses`."""
        return _grouped(*self.uses, len(self.edges))

    @cached_property
    def families(self) -> tuple[Numbers, ...]:
        """Sets of bounds that cover all edges; the sum over the bounds that a cut crosses limits its capacity."""
        _, bounds = self.uses
        first, count = self._spans
        most = int(count.max(initial=0))
        return tuple(np.unique(bounds[first + np.minimum(k, count - 1)]) for k in range(most))

    def bounds_used(self, edges: npt.NDArray[np.intp]) -> npt.NDArray[np.bool_]:
        """Returns for each bound whether one of some edges is in it."""
        _, bounds = self.uses
        first, count = (part[edges] for part in self._spans)
        used = np.zeros(len(self.bounds), np.bool_)
        used[bounds[np.repeat(first + count - np.cumsum(count), count) + np.arange(count.sum())]] = True
        return used

    @cached_property
    def _spans(self) -> tuple[Numbers, Numbers]:
        """Where the bounds of each edge begin in `uses`, and how many there are."""
        ends = np.searchsorted(self.uses[0], np.arange(len(self.edges) + 1))
        return ends[:-1], np.diff(ends)

    @cached_property
    def graph(self) -> tuple[int, tuple[tuple[int, int, int], ...]]:
        """The network as a graph: the number of vertices, and arcs (tail, head, bound), -1 for no bound.

        The ranks are the first vertices. An edge is a path through its bounds, which are arcs between two vertices, and
        through switches (see above). If two edges share several bounds, the graph may allow more than the network, but
        never less.
        """
        src, dst = self.ends
        edges, bounds = self.uses
        begins = np.diff(edges, prepend=-1) > 0
        ends = np.append(begins[1:], True)[: len(edges)]
        own = np.array([len(m) for m in self.members], np.int64)[bounds] == 1
        direct = begins & ends & own
        arcs = list(zip(src[edges[direct]].tolist(), dst[edges[direct]].tolist(), bounds[direct].tolist(), strict=True))
        shared = np.unique(bounds[~direct])
        vertices = self.ranks + 2 * len(shared)
        entry = np.zeros(len(self.bounds), np.int64)
        entry[shared] = np.arange(self.ranks, vertices, 2)
        arcs += zip(entry[shared].tolist(), (entry[shared] + 1).tolist(), shared.tolist(), strict=True)
        first, last = begins & ~direct, ends & ~direct
        inner = np.flatnonzero(~ends)
        joints = (
            (src[edges[first]], entry[bounds[first]]),
            (entry[bounds[last]] + 1, dst[edges[last]]),
            (entry[bounds[inner]] + 1, entry[bounds[inner + 1]]),
        )
        for tails, heads in joints:
            pairs = np.unique(tails * vertices + heads)
            vertices, more = switched(pairs // vertices, pairs % vertices, vertices)
            arcs += [(tail, head, -1) for tail, head in more]
        return vertices, tuple(arcs)

    def _by_end(self, end: int) -> tuple[tuple[int, ...], ...]:
        found: list[list[int]] = [[] for _ in range(self.ranks)]
        for e, edge in enumerate(self.edges):
            found[edge[end]].append(e)
        return tuple(tuple(f) for f in found)


def _codes(network: str, ranks: int, pairs: Sequence[Edge]) -> Numbers:
    """Pairs of ranks as ascending numbers: the first, times the number of ranks, plus the second."""
    if not pairs:
        return np.zeros(0, np.int64)
    if set(map(len, pairs)) == {2}:
        both: npt.NDArray[Any] = np.array(pairs)
        if both.dtype.kind in "iu" and int(both.min()) >= 0 and int(both.max()) < ranks:
            codes: Numbers = np.unique(np.asarray(both[:, 0] * ranks + both[:, 1], np.int64))
            if (codes % (ranks + 1)).all():  # of no rank to itself
                return codes
    wrong = next(p for p in pairs if len(p) != 2 or p[0] == p[1] or not all(r in range(ranks) for r in p))  # noqa: PLR2004
    raise errors.error("BadArgument", f"'{network}' has ranks 0 to {ranks - 1}, and no link {wrong}")


def _union(sets: Sequence[Numbers]) -> Numbers:
    return np.unique(np.concatenate([*sets, np.zeros(0, np.int64)]))


def _grouped(keys: Numbers, values: Numbers, count: int) -> tuple[tuple[int, ...], ...]:
    """The values of each key below `count`, if the keys ascend."""
    listed: list[int] = values.tolist()
    ends: list[int] = np.searchsorted(keys, np.arange(count + 1)).tolist()
    return tuple(tuple(listed[a:b]) for a, b in pairwise(ends))


def _nested(network: str, levels: Iterable[Level]) -> tuple[Level, ...]:
    """The levels that divide the ranks further than the next and less far than the one before."""
    found: list[Level] = []
    for name, groups in levels:
        if len(set(groups)) <= 1:
            break
        if found:
            inner, before = found[-1]
            if len(set(zip(before, groups, strict=True))) > len(set(before)):
                raise errors.error(
                    "BadArgument", f"'{network}' has a {inner} in several {name}s: levels must be nested"
                )
            if len(set(groups)) == len(set(before)):
                continue
        found.append((name, groups))
    return tuple(found)


def switched(tails: Numbers, heads: Numbers, first: int) -> tuple[int, list[tuple[int, int]]]:
    """Returns arcs over which the same tails reach the same heads, and the number of the next free vertex.

    Each tail must reach the head beside it; no pair may be repeated. The first free vertex is `first`.
    """
    arcs: list[tuple[int, int]] = []
    part = _components(tails, heads)
    order = np.lexsort((heads, tails, part))
    for some in np.split(order, np.flatnonzero(np.diff(part[order])) + 1):
        first, more = _through_hubs(tails[some], heads[some], first)
        arcs += more
    return first, arcs


def _components(tails: Numbers, heads: Numbers) -> Numbers:
    """A number for each pair, equal for those of a connected component."""
    _, tail = np.unique(tails, return_inverse=True)
    _, head = np.unique(heads, return_inverse=True)
    label = np.arange(len(tails))
    while True:
        before = label
        for end in (tail, head):
            least = np.full(int(end.max(initial=0)) + 1, len(tails))
            np.minimum.at(least, end, label)
            label = least[end]
        if np.array_equal(label, before):
            return label


def _through_hubs(tails: Numbers, heads: Numbers, first: int) -> tuple[int, list[tuple[int, int]]]:
    """The arcs of one component, given by tail and then by head."""
    direct = list(zip(tails.tolist(), heads.tolist(), strict=True))
    reached, place = np.unique(heads, return_inverse=True)
    begins = np.flatnonzero(np.diff(tails, prepend=-1))
    count = np.diff(np.append(begins, len(tails)))
    depth = max(len(reached) - 1, 1).bit_length()
    if len(direct) <= 2 * (len(reached) + depth * len(begins)):
        return first, direct
    # How many heads before it the tail does not reach: none, and then all that it does not reach at all.
    skipped = place - (np.arange(len(tails)) - np.repeat(begins, count))
    missing = np.repeat(len(reached) - count, count)
    if ((skipped > 0) & (skipped < missing)).any():
        return first, direct
    before = np.add.reduceat(skipped == 0, begins)
    leaf = 1 << depth  # a tree as in a heap: vertex v is above 2 v and 2 v + 1
    arcs: list[tuple[int, int]] = []

    def vertex(v: int) -> int:
        return first + v if v < leaf else int(reached[v - leaf])

    arcs += [(vertex(v // 2), vertex(v)) for v in range(2, leaf + len(reached))]
    for tail, low, many in zip(tails[begins].tolist(), before.tolist(), count.tolist(), strict=True):
        for begin, end in ((0, low), (len(reached) - (many - low), len(reached))):
            arcs += [(tail, vertex(v)) for v in _ranges(leaf + begin, leaf + end)]
    return first + leaf, arcs


def _ranges(low: int, high: int) -> list[int]:
    """The vertices of a binary tree in a heap whose leaves are those from `low` to `high`, which is not included."""
    found: list[int] = []
    while low < high:
        if low % 2:
            found.append(low)
            low += 1
        if high % 2:
            high -= 1
            found.append(high)
        low, high = low // 2, high // 2
    return found
