"""Schedules for a size: their objective is seconds, with the latency and the rate of every link.

Steps and rounds count a hop over a NIC like one over NVLink. Here every chunk gets a tree in which a hop costs its
latency, its time on the fullest resource, and the time for which that resource is taken already. Trees of few hops and
trees of cheap hops are both tried (the trade-off between Dijkstra's and Prim's trees: Alpert et al., IEEE TCAD 14(7),
1995). Then sends are scheduled as on the machine: a resource serves one after the other, and a chunk is sent on after
its latency. The trees with the earliest end are used.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gc3 import errors
from gc3.synth.problem import Hurry, at_leisure
from gc3.synth.problem.demand import Demand, Send
from gc3.synth.problem.network import Network
from gc3.synth.problem.schedule import Schedule, cheapest_path
from gc3.topologies import Resource, Topology

_TRADE_OFFS = (1.0, 0.5, 0.2, 0.0)  # how much the time until a rank has a chunk counts in the price of a hop from it
_PASSES = 2  # the second one knows the load of all trees


@dataclass(frozen=True, slots=True)
class Costs:
    """What a chunk costs on each edge of a network.

    Attributes:
        latency: Seconds, of each edge.
        uses: The shared parts of the machine that each edge uses, numbered.
        seconds: For each part, the seconds that a chunk takes it.
    """

    latency: tuple[float, ...]
    uses: tuple[tuple[int, ...], ...]
    seconds: tuple[float, ...]

    @staticmethod
    def of(
        topology: Topology,
        network: Network,
        chunk_bytes: float,
        *,
        back: bool = False,
        latency: Callable[[str], float] | None = None,
        rate: Callable[[Resource], float] | None = None,
    ) -> Costs:
        """Returns the costs on a machine.

        Args:
            topology: The machine of the network.
            network: Its network, or with `back` the reversed one.
            chunk_bytes: The size of a chunk.
            back: Whether every edge stands for the path from its end to its start.
            latency: Seconds of a hop by the name of its class; None: those of the topology, and 0 if not known.
            rate: Bytes per second of a part of the machine; None: its line rate.

        Raises:
            gc3.UserError: The bandwidth of a part of the machine is not known, or it is not the network's machine.
        """
        known = {c.name: c.latency_s or 0.0 for c in topology.classes}
        seconds: list[float] = []
        for part in topology.all_resources:
            per_s = topology.bandwidth(part) if rate is None else rate(part)
            seconds.append(topology.link_class(part.link_class).message_s + chunk_bytes / per_s)
        latencies: list[float] = []
        uses: list[tuple[int, ...]] = []
        for src, dst in network.edges:
            path = topology.path(dst, src) if back else topology.path(src, dst)
            if path is None:
                raise errors.error("NoPath", f"'{topology.name}' is not the machine of '{network.name}'")
            latencies.append(known[path.link_class] if latency is None else latency(path.link_class))
            uses.append(path.resources)
        return Costs(tuple(latencies), tuple(uses), tuple(seconds))

    def alone(self, edge: int) -> float:
        """Returns the seconds that a chunk takes over an idle edge."""
        return self.latency[edge] + max((self.seconds[part] for part in self.uses[edge]), default=0.0)

    def least(self, network: Network, wanted: Demand) -> float:
        """Returns a lower bound on the seconds: the farthest chunk alone, and the chunks that must enter a rank."""
        away = {source: _nearest(network, self, source) for source in {p.source for p in wanted.pieces if p.count}}
        far = max((away[p.source][t] for p in wanted.pieces if p.count for t in p.targets), default=0.0)
        return max([far, *(self._port(network, wanted, rank) for rank in range(wanted.ranks))])

    def _port(self, network: Network, wanted: Demand, rank: int) -> float:
        """The seconds that the chunks take that must enter a rank."""
        entering = sum(piece.count for piece in wanted.pieces if rank in piece.targets)
        parts = {max(self.uses[e], key=self.seconds.__getitem__) for e in network.incoming[rank] if self.uses[e]}
        rate = sum(1.0 / self.seconds[part] for part in parts)
        return entering / rate if rate else 0.0


@dataclass(frozen=True, slots=True)
class Timed:
    """A schedule for a size."""

    schedule: Schedule
    seconds: float  # until all data has arrived
    least: float  # seconds that every schedule of these chunks takes at least, by the same costs


def timed(network: Network, wanted: Demand, costs: Costs, opening: float = 0.0, hurry: Hurry = at_leisure) -> Timed:
    """Returns the schedule with the earliest end of those that are tried.

    The first use of an edge costs `opening` in addition, as a multiple of the dearest hop. With more of it ranks have
    fewer peers, so that the program needs fewer threadblocks.
    """
    best: Timed | None = None
    least = costs.least(network, wanted)
    for trade_off in _TRADE_OFFS:
        grower = _Grower(network, wanted, costs, opening, trade_off)
        for _ in range(_PASSES):
            for chunk in grower.turns():
                hurry()
                grower.grow(chunk)
        schedule, seconds = _scheduled(network, wanted, costs, grower.trees)
        if best is None or seconds < best.seconds:
            best = Timed(schedule, seconds, least)
    assert best is not None  # noqa: S101 - there are trade-offs
    return best


def _nearest(network: Network, costs: Costs, source: int) -> list[float]:
    """The seconds after which a chunk can be on each rank."""
    found = [math.inf] * network.ranks
    found[source] = 0.0
    todo = [(0.0, source)]
    while todo:
        so_far, rank = heapq.heappop(todo)
        if so_far > found[rank]:
            continue
        for edge in network.outgoing[rank]:
            target, further = network.edges[edge][1], so_far + costs.alone(edge)
            if further < found[target]:
                found[target] = further
                heapq.heappush(todo, (further, target))
    return found


class _Grower:
    """Trees of all chunks as they grow. A tree is a list of edges; the one into a sender comes before its own."""

    def __init__(self, network: Network, wanted: Demand, costs: Costs, opening: float, trade_off: float) -> None:
        self.trees: dict[int, list[int]] = {}
        self._network, self._wanted, self._costs = network, wanted, costs
        self._alone = [costs.alone(edge) for edge in range(len(network.edges))]
        self._opening = opening * max(self._alone, default=0.0)
        self._trade_off = trade_off
        self._load = [0.0] * len(costs.seconds)
        self._used = [0] * len(network.edges)

    def turns(self) -> list[int]:
        """Returns all chunks, those of different sources in turn."""
        wanted = self._wanted
        return sorted(range(wanted.chunk_count), key=lambda c: c - wanted.first[wanted.piece_of[c]])

    def grow(self, chunk: int) -> None:
        """Gives a chunk a new tree."""
        piece = self._wanted.pieces[self._wanted.piece_of[chunk]]
        for edge in self.trees.pop(chunk, ()):
            self._note(edge, -1)
        grown = self._grown(piece.source, set(piece.targets))
        for edge in grown:
            self._note(edge, 1)
        self.trees[chunk] = grown

    def _note(self, edge: int, times: int) -> None:
        self._used[edge] += times
        for part in self._costs.uses[edge]:
            self._load[part] += times * self._costs.seconds[part]

    def _price(self, edge: int) -> float:
        waiting = max((self._load[part] for part in self._costs.uses[edge]), default=0.0)
        return self._alone[edge] + waiting + (0.0 if self._used[edge] else self._opening)

    def _grown(self, source: int, left: set[int]) -> list[int]:
        """The tree that grows by the path to a target that is best with the trade-off, again and again."""
        prices = [self._price(edge) for edge in range(len(self._alone))]
        arrival = {source: 0.0}  # in the tree
        tree: list[int] = []
        while left:
            begin = {rank: self._trade_off * seconds for rank, seconds in arrival.items()}
            for edge in cheapest_path(self._network, begin, left, prices.__getitem__) or ():
                src, dst = self._network.edges[edge]
                arrival[dst] = arrival[src] + prices[edge]
                tree.append(edge)
                left.discard(dst)
        return tree


def _scheduled(network: Network, wanted: Demand, costs: Costs, trees: dict[int, list[int]]) -> tuple[Schedule, float]:
    """Sends chunks over their trees as soon as there is room, those with the longest way to go first."""
    after: list[list[int]] = []
    hops: list[tuple[int, int]] = []  # chunk, edge
    ready: list[tuple[float, float, int]] = []  # seconds, what is left to do after it, hop
    left: list[float] = []
    for chunk, tree in trees.items():
        brought: dict[int, int] = {}
        first = len(hops)
        for edge in tree:
            src, dst = network.edges[edge]
            if src in brought:
                after[brought[src]].append(len(hops))
            brought[dst] = len(hops)
            hops.append((chunk, edge))
            after.append([])
        left += [0.0] * (len(hops) - first)
        for hop in range(len(hops) - 1, first - 1, -1):
            left[hop] = costs.alone(hops[hop][1]) + max((left[a] for a in after[hop]), default=0.0)
        source = wanted.pieces[wanted.piece_of[chunk]].source
        ready += [(0.0, -left[h], h) for h in range(first, len(hops)) if network.edges[hops[h][1]][0] == source]
    heapq.heapify(ready)
    free = [0.0] * len(costs.seconds)
    begun: list[tuple[float, int]] = []
    end = 0.0
    while ready:
        at, longest, hop = heapq.heappop(ready)
        edge = hops[hop][1]
        start = max([at, *(free[part] for part in costs.uses[edge])])
        if start > at:
            heapq.heappush(ready, (start, longest, hop))
            continue
        for part in costs.uses[edge]:
            free[part] = start + costs.seconds[part]
        arrives = start + costs.alone(edge)
        end = max(end, arrives)
        begun.append((start, hop))
        for later in after[hop]:
            heapq.heappush(ready, (arrives, -left[later], later))
    return _in_steps(network, [(hops[hop][0], *network.edges[hops[hop][1]]) for _, hop in begun]), end


def _in_steps(network: Network, sends: Sequence[Send]) -> Schedule:
    """Divides sends that are in the order of their starts into steps, each with as many rounds as its load takes."""
    steps: list[list[Send]] = [[]]
    arriving: set[tuple[int, int]] = set()
    for chunk, src, dst in sends:
        if (chunk, src) in arriving:
            steps.append([])
            arriving.clear()
        steps[-1].append((chunk, src, dst))
        arriving.add((chunk, dst))
    rounds: list[int] = []
    for step in steps if sends else ():
        load = [0] * len(network.bounds)
        for _, src, dst in step:
            for b in network.bounds_of[network.edge_index[src, dst]]:
                load[b] += 1
        rounds.append(max(math.ceil(used / chunks) for used, (_, chunks) in zip(load, network.bounds, strict=True)))
    return Schedule.of(rounds, [(s, send) for s, step in enumerate(steps) for send in step])
