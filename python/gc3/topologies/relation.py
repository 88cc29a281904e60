"""SCCL's bandwidth relation (001 section 3.2.1) of a topology: sets of links with a bound per round.

If a rank has several rails, a transfer may use any of them, and the relation bounds the chunks that cross all of them
together. Resources that are alternatives to each other form a pool.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from gc3 import errors
from gc3.topologies.model import Topology
from gc3.topologies.parts import Bound

# Line rates are rounded numbers, so a bound that is just below a whole number of chunks is rounded up to it.
_SLACK = 1e-9
_MOST = 40  # bits of the chunks in a round: with all rounds of a schedule, they fit 64 bits


@dataclass(frozen=True, slots=True)
class Pool:
    """Resources of which each transfer uses one."""

    resources: tuple[int, ...]  # indices into `Topology.all_resources`
    bandwidth_bytes_per_s: float  # the line rate of all together
    lane_bytes_per_s: float  # the line rate of one lane


class Pools:
    """The pools of a topology, and the pools that the path of each pair of ranks uses."""

    def __init__(self, topology: Topology) -> None:
        """Finds the pools."""
        self._topology = topology
        self._leader = list(range(len(topology.all_resources)))
        self._merge_rails()
        members: dict[int, list[int]] = {}
        for resource in range(len(self._leader)):
            members.setdefault(self._find(resource), []).append(resource)
        self._members = list(members.values())
        number = {resource: i for i, some in enumerate(self._members) for resource in some}
        self._pool_of = [number[resource] for resource in range(len(self._leader))]

    def pool(self, index: int) -> Pool:
        """Returns a pool.

        Raises:
            gc3.UserError: The bandwidth of a resource is not known.
        """
        topology, members = self._topology, self._members[index]
        resources = [topology.all_resources[i] for i in members]
        rates = [topology.bandwidth(r) for r in resources]
        lane = min(rate / r.lanes for rate, r in zip(rates, resources, strict=True))
        return Pool(tuple(members), sum(rates), lane)

    def path(self, src: int, dst: int) -> tuple[int, ...] | None:
        """Returns the pools that a path uses, in its order; None if there is no path."""
        path = self._topology.path(src, dst)
        if path is None:
            return None
        return tuple(dict.fromkeys(map(self._pool_of.__getitem__, path.resources)))

    def of(self, resource: int) -> int:
        """Returns the pool of a resource."""
        return self._pool_of[resource]

    def _find(self, resource: int) -> int:
        while self._leader[resource] != resource:
            self._leader[resource] = self._leader[self._leader[resource]]
            resource = self._leader[resource]
        return resource

    def _merge_rails(self) -> None:
        index = {r.name: i for i, r in enumerate(self._topology.resources)}
        for fabric in self._topology.fabrics:
            sides: dict[tuple[int, bool], list[set[str]]] = {}
            for port in fabric.ports:
                sides.setdefault((port.rank, True), []).append(set(port.out))
                sides.setdefault((port.rank, False), []).append(set(port.into))
            for rails in sides.values():
                different = sorted(index[n] for n in set[str]().union(*rails) - rails[0].intersection(*rails))
                for resource in different[1:]:
                    self._leader[self._find(resource)] = self._find(different[0])


def relation(topology: Topology, chunk_bytes_per_s: float | None = None) -> tuple[Bound, ...]:
    """Returns the bandwidth relation. Each bound limits the chunks per round over some pairs together.

    It is the topology's own `bounds` if it has any; otherwise one bound for each shared resource and link.

    Args:
        topology: The machine.
        chunk_bytes_per_s: The bandwidth that carries one chunk per round; by default that of the slowest lane in use.

    >>> from gc3 import topologies
    >>> sorted({bound.chunks for bound in relation(topologies.load("dgx1"))})
    [1, 2]
    """
    if topology.bounds is not None and chunk_bytes_per_s is None:
        return topology.bounds
    least: dict[tuple[tuple[int, int], ...], int] = {}
    for pairs, rate in rates(topology, chunk_bytes_per_s):
        chunks = int(float(rate) + _SLACK)
        least[pairs] = min(chunks, least.get(pairs, chunks))
    return tuple(Bound(pairs, chunks) for pairs, chunks in least.items())


def carried_once(topology: Topology, sets: Sequence[Sequence[tuple[int, int]]]) -> tuple[set[int], set[int]]:
    """Returns the sets of pairs whose bound a multicast loads once, and those whose bound a sum in the switch does.

    The pairs of such a set have one sender, or one receiver, and the switches between them multicast and add up.
    """
    direct = {(link.src, link.dst) for link in topology.links}
    found: tuple[set[int], set[int]] = (set(), set())
    if not topology.multicasts:
        return found
    for i, pairs in enumerate(sets):
        for end in (0, 1):
            if len({pair[end] for pair in pairs}) == 1 and all(_switched(topology, pair, direct) for pair in pairs):
                found[end].add(i)
    return found


def _switched(topology: Topology, pair: tuple[int, int], direct: set[tuple[int, int]]) -> bool:
    path = None if pair in direct else topology.path(*pair)
    return path is not None and topology.link_class(path.link_class).multicast_efficiency > 0


def rates(
    topology: Topology, chunk_bytes_per_s: float | None = None
) -> tuple[tuple[tuple[tuple[int, int], ...], Fraction], ...]:
    """Returns for each shared resource and link the pairs that use it, and the exact number of chunks per round.

    Args:
        topology: The machine; its own `bounds` are ignored.
        chunk_bytes_per_s: The bandwidth that carries one chunk per round; by default that of the slowest lane in use.

    Raises:
        gc3.UserError: A resource does not carry a whole chunk per round, or far too many, or its rate is not known.
    """
    pools = Pools(topology)
    pairs: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for src in range(topology.rank_count):
        for dst in topology.reached(src):
            pair = (src, dst)
            for pool in pools.path(src, dst) or ():
                pairs[pool].append(pair)
    used = {i: pools.pool(i) for i in sorted(pairs)}
    unit = chunk_bytes_per_s or min((p.lane_bytes_per_s for p in used.values()), default=1.0)
    found: list[tuple[tuple[tuple[int, int], ...], Fraction]] = []
    for i, pool in used.items():
        rate = Fraction(pool.bandwidth_bytes_per_s) / Fraction(unit) if math.isfinite(unit) else Fraction(0)
        if abs(rate - round(rate)) < _SLACK:
            rate = Fraction(round(rate))
        if not 1 <= rate <= 1 << _MOST:
            name = topology.all_resources[pool.resources[0]].name
            what = "cannot carry a chunk" if rate < 1 else f"would carry more than 2^{_MOST} chunks"
            raise errors.error("BadArgument", f"'{name}' {what} per round at {unit:g} bytes per second")
        found.append((tuple(pairs[i]), rate))
    return tuple(found)
