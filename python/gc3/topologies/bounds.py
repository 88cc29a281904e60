"""Bounds of a topology: steps from rank to rank, and bytes per second across a cut."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import product

from gc3 import errors
from gc3.support.maximum_flow import INFINITE, Flow
from gc3.topologies.model import Topology
from gc3.topologies.relation import Pools

UNREACHABLE = 1 << 30


def diameter(topology: Topology) -> int | None:
    """Returns the most steps that data needs from one rank to another; None if some rank cannot be reached.

    >>> from gc3 import topologies
    >>> diameter(topologies.load("dgx1"))
    2
    """
    everyone = range(topology.rank_count)
    onward = [[d for d in everyone if topology.path(r, d) is not None] for r in everyone]
    longest = max(max(distances(onward, start)) for start in everyone)
    return None if longest == UNREACHABLE else longest


def distances(onward: Sequence[Sequence[int]], start: int) -> tuple[int, ...]:
    """Returns the steps to each rank from one; `UNREACHABLE` if there is no path. `onward`: where each rank leads."""
    steps = [UNREACHABLE] * len(onward)
    steps[start] = 0
    todo = deque([start])
    missing = len(onward) - 1
    while todo and missing:
        rank = todo.popleft()
        for target in onward[rank]:
            if steps[target] == UNREACHABLE:
                missing -= 1
                steps[target] = steps[rank] + 1
                todo.append(target)
    return tuple(steps)


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
    graph = Flow(2)  # 0 is the sender, 1 the receiver
    ends: dict[int, tuple[int, int]] = {}  # of each pool: its entry and its exit
    joined: set[tuple[int, int]] = set()
    for src, dst in product(sorted(inside), range(topology.rank_count)):
        path = None if dst in inside else pools.path(src, dst)
        place = 0
        for pool in path or ():
            if pool not in ends:
                ends[pool] = graph.vertex(), graph.vertex()
                graph.arc(*ends[pool], round(pools.pool(pool).bandwidth_bytes_per_s))
            joined.add((place, ends[pool][0]))
            place = ends[pool][1]
        if path is not None:
            joined.add((place, 1))
    for tail, head in sorted(joined):
        graph.arc(tail, head, INFINITE)
    return float(graph.run(0, 1))
