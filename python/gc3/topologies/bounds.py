"""Bounds of a topology: steps from rank to rank, and bytes per second across a cut."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable

from gc3 import errors
from gc3.topologies.model import Topology
from gc3.topologies.relation import Pools


def diameter(topology: Topology) -> int | None:
    """Returns the most steps that data needs from one rank to another; None if some rank cannot be reached.

    >>> from gc3 import topologies
    >>> diameter(topologies.load("dgx1"))
    2
    """
    everyone = range(topology.rank_count)
    onward = {r: [d for d in everyone if topology.path(r, d) is not None] for r in everyone}
    longest = 0
    for start in everyone:
        steps = {start: 0}
        todo = deque([start])
        while todo:
            rank = todo.popleft()
            for target in onward[rank]:
                if target not in steps:
                    steps[target] = steps[rank] + 1
                    todo.append(target)
        if len(steps) < topology.rank_count:
            return None
        longest = max(longest, *steps.values())
    return longest


def egress(topology: Topology, rank: int) -> float:
    """Returns the bytes per second that a rank can send to all others together."""
    return cut_bandwidth(topology, [rank])


def ingress(topology: Topology, rank: int) -> float:
    """Returns the bytes per second that a rank can receive from all others together."""
    return cut_bandwidth(topology, [r for r in range(topology.rank_count) if r != rank])


def cut_bandwidth(topology: Topology, side: Iterable[int]) -> float:
    """Returns the bytes per second that the ranks of `side` can send to the others, at line rate.

    This is a maximum flow through the resources that the paths across the cut use. It is exact if each resource belongs
    to one link or one port. If pairs share a resource and continue on different paths, the result can be too high,
    because the flow may then take a combination of resources that is no path.

    >>> from gc3 import topologies
    >>> cut_bandwidth(topologies.load("dgx1"), range(4)) / 1e9
    150.0
    """
    inside = frozenset(side)
    if not inside <= frozenset(range(topology.rank_count)):
        raise errors.error("BadArgument", f"'{topology.name}' has ranks 0 to {topology.rank_count - 1}")
    pools = Pools(topology)
    # Vertices: 0 is the sender, 1 the receiver; then the entry and the exit of each pool.
    capacity: dict[int, dict[int, float]] = {0: {}, 1: {}}
    for src in sorted(inside):
        for dst in range(topology.rank_count):
            path = None if dst in inside else pools.path(src, dst)
            if path is None:
                continue
            place = 0
            for pool in path:
                entry, leave = 2 + 2 * pool, 3 + 2 * pool
                capacity.setdefault(place, {})[entry] = math.inf
                if entry not in capacity:
                    capacity[entry] = {leave: pools.pool(pool).bandwidth_bytes_per_s}
                place = leave
            capacity.setdefault(place, {})[1] = math.inf
    return _maximum_flow(capacity)


def _maximum_flow(capacity: dict[int, dict[int, float]]) -> float:
    """The maximum flow from vertex 0 to vertex 1, by shortest augmenting paths; `capacity` becomes the residual."""
    total = 0.0
    while True:
        came_from = {0: 0}
        todo = deque([0])
        while todo and 1 not in came_from:
            vertex = todo.popleft()
            for target, left in capacity.get(vertex, {}).items():
                if left > 0 and target not in came_from:
                    came_from[target] = vertex
                    todo.append(target)
        if 1 not in came_from:
            return total
        hops: list[tuple[int, int]] = []
        vertex = 1
        while vertex:
            hops.append((came_from[vertex], vertex))
            vertex = came_from[vertex]
        amount = min(capacity[a][b] for a, b in hops)
        for a, b in hops:
            capacity[a][b] -= amount
            back = capacity.setdefault(b, {})
            back[a] = back.get(a, 0.0) + amount
        total += amount
