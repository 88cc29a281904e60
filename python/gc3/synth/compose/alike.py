"""Machines of many nodes that are alike: the coordinates of ranks, and trees over the distances between them.

The coordinates of a rank in its node are chosen so that the tree inside has few steps: 2 x 4 for the cube mesh of a
DGX-1, of which every rank is linked to the same distances.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import product
from typing import TypeAlias

from gc3 import errors
from gc3.topologies.model import Topology
from gc3.topologies.relation import Pools

Distance: TypeAlias = "tuple[int, ...]"  # the difference of nodes, and that of each coordinate in a node
Tree: TypeAlias = "list[list[tuple[Distance, Distance]]]"  # by step: from and to


class Machine:
    """A machine of nodes that are alike."""

    def __init__(self, topology: Topology) -> None:
        """Compares the nodes, and chooses the coordinates of a rank in its node.

        Raises:
            gc3.UserError: The nodes are not alike, or no coordinates make their ranks so.
        """
        self.topology = topology
        self.nodes = topology.node_count
        self.size = topology.rank_count // self.nodes
        self._pools = Pools(topology)
        self._check_alike()
        self.hop_loads = lru_cache(maxsize=None)(self._hop_loads)
        found = [made for shape in _shapes(self.size) if (made := self._inside(shape)) is not None]
        if not found:
            self._refuse("no coordinates make the ranks of a node alike")
        self.shape, self.inside = min(found, key=lambda made: (len(made[1]), len(made[0]), made[0]))

    def _refuse(self, why: str) -> None:
        raise errors.error(
            "BadArgument",
            f"'{self.topology.name}' is not made of several nodes that are alike: {why}. So large a machine needs a "
            "schedule that one rank stands for; fewer nodes do not",
        )

    def _check_alike(self) -> None:
        ranks, size = self.topology.ranks, self.size
        if self.nodes == 1 or size * self.nodes != len(ranks):
            self._refuse("there is one node" if self.nodes == 1 else "nodes have different numbers of ranks")
        if any(rank.node != number // size for number, rank in enumerate(ranks)):
            self._refuse("the ranks of a node do not follow each other")
        shared = {
            i
            for i, fabric in enumerate(self.topology.fabrics)
            if len({ranks[port.rank].node for port in fabric.ports}) > 1
        }
        links: list[list[tuple[int, int]]] = [[] for _ in range(self.nodes)]
        for link in self.topology.links:
            if ranks[link.src].node != ranks[link.dst].node:
                self._refuse(f"ranks {link.src} and {link.dst} of different nodes are linked")
            links[ranks[link.src].node].append((link.src, link.dst))
        self._twin: dict[int, int] = {}  # of each resource: that of node 0 in its place
        first: list[int] = []
        told: object = None
        for node in range(self.nodes):
            used: dict[int, int] = {}
            about = self._described(node, shared, links[node], used)
            told = about if node == 0 else told
            first = list(used) if node == 0 else first
            if about != told:
                self._refuse(f"node {node} differs from node 0")
            if not self._twin.keys().isdisjoint(used):
                self._refuse(f"node {node} shares NICs or links with another one")
            self._twin.update(zip(used, first, strict=True))

    def _described(self, node: int, shared: set[int], links: list[tuple[int, int]], used: dict[int, int]) -> object:
        """All that is known of a node, with resources and its own fabrics numbered as they are met."""
        resources, fabrics = self.topology.all_resources, dict[int, int]()

        def row(listed: Sequence[int]) -> tuple[object, ...]:
            return tuple((used.setdefault(r, len(used)), resources[r].link_class, resources[r].lanes) for r in listed)

        def fabric(number: int) -> tuple[object, ...]:
            kind = self.topology.fabrics[number]
            own = number if number in shared else fabrics.setdefault(number, len(fabrics))
            return number in shared, own, kind.link_class, kind.across_nodes

        found: list[object] = []
        for rank in range(node * self.size, (node + 1) * self.size):
            for number, ports in self.topology.ports(rank).items():
                found.append((rank % self.size, fabric(number), [(row(out), row(into)) for out, into in ports]))
        for src, dst in sorted(links):
            path = self.topology.path(src, dst)
            assert path is not None  # noqa: S101 - it is a link
            found.append((src % self.size, dst % self.size, path.link_class, row(path.resources)))
        return found

    def _inside(self, shape: tuple[int, ...]) -> tuple[tuple[int, ...], Tree] | None:
        """A tree in a node with coordinates of this shape; None if it does not reach all ranks."""
        zero = (0,) * len(shape)
        others = [d for d in product(*map(range, shape)) if d != zero]
        costs = {d: cost for d in others if (cost := self._cost((0, *d), shape)) is not None}
        used: Counter[Distance] = Counter()
        tree: Tree = []
        reached = [zero]
        while len(reached) <= len(others):
            layer: list[tuple[Distance, Distance]] = []
            for to in others:
                if to in reached:
                    continue
                ways = [(at, hop) for at in reached if (hop := between(at, to, shape)) in costs]
                if ways:
                    at, hop = min(ways, key=lambda way: (used[way[1]] + 1) * costs[way[1]])
                    used[hop] += 1
                    layer.append(((0, *at), (0, *to)))
            if not layer:
                return None
            tree.append(layer)
            reached += [to[1:] for _, to in layer]
        return shape, tree

    def _cost(self, hop: Distance, shape: tuple[int, ...]) -> Fraction | None:
        """What one block over a hop from each rank takes; None if some ranks have no path."""
        loads = self._loads_of(hop, shape)
        return None if loads is None else self.time(loads)

    def _hop_loads(self, hop: Distance) -> Counter[int]:
        """How often each pool of a node is loaded if every rank sends once over a hop.

        Raises:
            gc3.UserError: Some ranks have no path.
        """
        loads = self._loads_of(hop, self.shape)
        if loads is None:
            self._refuse("ranks of the same place in different nodes do not reach each other")
        return loads or Counter()

    def _loads_of(self, hop: Distance, shape: tuple[int, ...]) -> Counter[int] | None:
        loads: Counter[int] = Counter()
        for src in range(self.size):
            at = moved(_digits(src, shape), hop[1:], shape)
            path = self.topology.path(src, hop[0] * self.size + number_of(at, shape))
            if path is None:
                return None
            loads.update({self._pools.of(self._twin[resource]) for resource in path.resources})
        return loads

    def time(self, loads: Counter[int]) -> Fraction:
        """The seconds for each byte of a block, by the line rates."""
        rates = {pool: Fraction(self._pools.pool(pool).bandwidth_bytes_per_s) for pool in loads}
        return max((load / rates[pool] for pool, load in loads.items() if rates[pool]), default=Fraction(0))

    @cached_property
    def unit(self) -> float:
        """The line rate of the slowest lane in use, in bytes per second."""
        hops = {between(src, dst, (self.nodes, *self.shape)) for layer in self.inside for src, dst in layer}
        hops.add((1, *(0 for _ in self.shape)))
        return min(
            (self._pools.pool(pool).lane_bytes_per_s for hop in hops for pool in self.hop_loads(hop)), default=1.0
        )

    def across(self, base: int) -> Tree:
        """Returns the tree between nodes whose distances have digits below `base`, the largest digit first.

        So what a rank has gathered in a reduction is of nodes that follow each other.
        """
        zero = tuple(0 for _ in self.shape)
        tree: Tree = []
        place = 1
        while place < self.nodes:
            ends = range(place, self.nodes, place)
            place *= base
            tree.insert(0, [((to - to % place, *zero), (to, *zero)) for to in ends if to % place])
        return tree


def _shapes(size: int, least: int = 2) -> Iterator[tuple[int, ...]]:
    """The factors, in any order, of a number."""
    if size == 1:
        yield ()
    for factor in range(least, size + 1):
        if size % factor == 0:
            yield from ((factor, *rest) for rest in _shapes(size // factor))


def _digits(number: int, shape: Sequence[int]) -> Distance:
    found: list[int] = []
    for values in reversed(shape):
        found.append(number % values)
        number //= values
    return tuple(reversed(found))


def number_of(at: Sequence[int], shape: Sequence[int]) -> int:
    """Returns the number of the rank with these coordinates."""
    number = 0
    for digit, values in zip(at, shape, strict=True):
        number = number * values + digit
    return number


def moved(at: Distance, by: Distance, shape: Sequence[int]) -> Distance:
    """Returns the coordinates at a distance from others."""
    return tuple((a + b) % values for a, b, values in zip(at, by, shape, strict=True))


def between(src: Distance, dst: Distance, shape: Sequence[int]) -> Distance:
    """Returns the distance from coordinates to others."""
    return tuple((b - a) % values for a, b, values in zip(src, dst, shape, strict=True))
