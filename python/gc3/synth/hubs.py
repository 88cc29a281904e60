"""Graphs in which switches are vertices: few arcs that allow what an arc for each pair of ports would.

A switch takes what leaves any of its ports to any other port, but not back to the rank or node that it came from. So a
port reaches all others except some that follow each other. Above the other ports lies a binary tree of vertices, of
which each reaches a range of them, and a port is joined to the ranges before and behind those that it does not reach.
That makes O(n log n) arcs for n ports instead of n^2, and nothing more may flow.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Numbers: TypeAlias = "npt.NDArray[np.int64]"


def switched(tails: Numbers, heads: Numbers, first: int) -> tuple[int, list[tuple[int, int]]]:
    """Returns arcs over which the same tails reach the same heads, and the number of the next free vertex.

    Args:
        tails: Vertices.
        heads: For each tail a vertex that it must reach; no pair may be repeated.
        first: The number of the first vertex that is free.
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
