"""The order of a node's ranks in which each has a wide link to the next."""

from __future__ import annotations

from gc3.topologies.model import Topology

_MOST_STEPS = 20_000  # of a search for a ring along links of some rate
_MOST_RANKS = 64  # of a node; in larger ones, ranks are joined by switches


def ring_order(topology: Topology) -> tuple[int, ...]:
    """Returns the ranks of the first node in the order of a ring whose slowest path is as fast as possible.

    The tuple is empty if a ring in the order of their numbers is as good, none was found, or nodes have over 64 ranks.

    >>> from gc3 import topologies
    >>> ring_order(topologies.load("ndv2")), ring_order(topologies.load("ndv4"))
    ((0, 1, 3, 2, 6, 7, 5, 4), ())
    """
    members = [r for r, rank in enumerate(topology.ranks) if rank.node == 0]
    if len(members) > _MOST_RANKS:
        return ()
    rates = {(a, b): _rate(topology, a, b) for a in members for b in members if a != b}
    for least in sorted(set(rates.values()) - {0.0}, reverse=True):
        found = _ring(members, {pair for pair, rate in rates.items() if rate >= least})
        if found:
            return () if found == members else tuple(found)
    return ()


def _rate(topology: Topology, src: int, dst: int) -> float:
    """Bytes per second of a path; 0 without one, or if it is not known."""
    path = topology.path(src, dst)
    parts = [topology.all_resources[index] for index in path.resources] if path else []
    return min(((topology.link_class(p.link_class).bandwidth_bytes_per_s or 0.0) * p.lanes for p in parts), default=0.0)


def _ring(members: list[int], pairs: set[tuple[int, int]]) -> list[int]:
    """The first ring in the order of numbers along some pairs; empty if there is none, or it is not found soon."""
    todo = [members[:1]]
    for _ in range(_MOST_STEPS):
        if not todo:
            break
        begun = todo.pop()
        if len(begun) == len(members) and (begun[-1], begun[0]) in pairs:
            return begun
        further = (r for r in reversed(members) if r not in begun and (begun[-1], r) in pairs)
        todo += [[*begun, r] for r in further]
    return []
