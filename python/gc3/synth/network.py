"""The network as in SCCL (001 section 3.2.1): ranks, edges, and bounds on the load of sets of edges per round."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TypeAlias

from gc3 import errors, topologies
from gc3.topologies import Topology
from gc3.topologies.relation import rates

Edge: TypeAlias = "tuple[int, int]"
# Chunks in a round: whole numbers are ints. The capacity of several rounds is rounded down as a whole.
Capacity: TypeAlias = "int | Fraction"

UNREACHABLE = 1 << 30


@dataclass(frozen=True)
class Network:
    """The pairs of ranks that can communicate, and how much in a round.

    Attributes:
        name: Its name in messages.
        ranks: Number of ranks.
        edges: The pairs that can communicate, (from, to), in ascending order.
        bounds: Sets of edges, as indices into `edges`, with the chunks that they carry together in a round; in r
            rounds of a step r times as many, rounded down. Every edge is in at least one.
        nodes: The node of each rank; empty if there are none, or only one.
    """

    name: str
    ranks: int
    edges: tuple[Edge, ...]
    bounds: tuple[tuple[tuple[int, ...], Capacity], ...]
    nodes: tuple[int, ...] = ()

    @staticmethod
    def of_relation(
        name: str, ranks: int, relation: Iterable[tuple[Iterable[Edge], Capacity]], nodes: Sequence[int] = ()
    ) -> Network:
        """Returns the network of a bandwidth relation; pairs with a bound of zero cannot communicate.

        Raises:
            gc3.UserError: The relation names a rank that does not exist, or a bound is negative.

        >>> Network.of_relation("pair", 2, [([(0, 1)], 2), ([(1, 0)], 1)]).edges
        ((0, 1), (1, 0))
        """
        sets = [(tuple(dict.fromkeys(pairs)), chunks) for pairs, chunks in relation]
        for pairs, chunks in sets:
            if not isinstance(chunks, Fraction):
                errors.whole(chunks, f"the bound of a set of links of '{name}'")
            elif chunks < 0:
                raise errors.error("BadArgument", f"the bound of a set of links of '{name}' is {chunks}")
            for pair in pairs:
                if len(pair) != 2 or pair[0] == pair[1] or not all(0 <= r < ranks for r in pair):  # noqa: PLR2004
                    raise errors.error("BadArgument", f"'{name}' has ranks 0 to {ranks - 1}, and no link {pair}")
        closed = {pair for pairs, chunks in sets if chunks == 0 for pair in pairs}
        edges = tuple(sorted({pair for pairs, _ in sets for pair in pairs} - closed))
        index = {edge: i for i, edge in enumerate(edges)}
        least: dict[tuple[int, ...], Capacity] = {}
        for pairs, chunks in sets:
            members = tuple(sorted(index[pair] for pair in pairs if pair in index))
            if members:
                exact = int(chunks) if chunks == int(chunks) else chunks
                least[members] = min(exact, least.get(members, exact))
        return Network(name, ranks, edges, tuple(least.items()), tuple(nodes) if len(set(nodes)) > 1 else ())

    @staticmethod
    def of(topology: Topology, chunk_bytes_per_s: float | None = None) -> Network:
        """Returns the network of a topology, with its bandwidths as they are.

        A topology's own `bounds` apply if no bandwidth is given, see `gc3.topologies.relation`.

        Args:
            topology: The machine.
            chunk_bytes_per_s: The bandwidth that carries one chunk per round; by default that of the slowest lane.
        """
        relation: Iterable[tuple[Iterable[Edge], Capacity]]
        if topology.bounds is not None and chunk_bytes_per_s is None:
            relation = ((b.pairs, b.chunks) for b in topologies.relation(topology))
        else:
            relation = rates(topology, chunk_bytes_per_s)
        nodes = [rank.node for rank in topology.ranks]
        return Network.of_relation(topology.name, topology.rank_count, relation, nodes)

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

    @cached_property
    def capacity(self) -> tuple[Capacity, ...]:
        """The load that each edge carries in a round if nothing else is sent."""
        least: list[Capacity] = [UNREACHABLE] * len(self.edges)
        for members, chunks in self.bounds:
            for e in members:
                least[e] = min(least[e], chunks)
        return tuple(least)

    @cached_property
    def bounds_of(self) -> tuple[tuple[int, ...], ...]:
        """The bounds that each edge is in."""
        found: list[list[int]] = [[] for _ in self.edges]
        for b, (members, _) in enumerate(self.bounds):
            for e in members:
                found[e].append(b)
        return tuple(tuple(f) for f in found)

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
        return tuple(_distances(onward, start) for start in range(self.ranks))

    @cached_property
    def reversed(self) -> Network:
        """The network with every edge reversed, bounds included; the network itself if that changes nothing."""
        turned = [(dst, src) for src, dst in self.edges]
        other = Network.of_relation(
            self.name,
            self.ranks,
            (([turned[e] for e in members], chunks) for members, chunks in self.bounds),
            self.nodes,
        )
        alike = other.edges == self.edges and {(frozenset(m), c) for m, c in other.bounds} == {
            (frozenset(m), c) for m, c in self.bounds
        }
        return self if alike else other

    def _by_end(self, end: int) -> tuple[tuple[int, ...], ...]:
        found: list[list[int]] = [[] for _ in range(self.ranks)]
        for e, edge in enumerate(self.edges):
            found[edge[end]].append(e)
        return tuple(tuple(f) for f in found)


def _distances(onward: Sequence[Sequence[int]], start: int) -> tuple[int, ...]:
    steps = [UNREACHABLE] * len(onward)
    steps[start] = 0
    todo = deque([start])
    while todo:
        rank = todo.popleft()
        for target in onward[rank]:
            if steps[target] == UNREACHABLE:
                steps[target] = steps[rank] + 1
                todo.append(target)
    return tuple(steps)
