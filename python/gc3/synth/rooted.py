"""Symmetries of a demand with one source: automorphisms that keep the source and permute its chunks.

A permutation that fixes the root cannot act freely on the ranks, but it can on the chunks. If there are as many chunks
as the group has elements (or a multiple), the trees of all chunks are images of each other, and only one has to be
found. For example, the four links of a torus serve four chunks whose trees are quarter turns of each other.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from gc3.synth.demand import Demand
from gc3.synth.network import Network
from gc3.synth.symmetry import Group, Permutation, automorphisms

_LARGEST = 24
_PAIRS = 60
_OF_AN_ORDER = 2  # groups of the same order to try


@dataclass(frozen=True)
class Turning(Group):
    """A group of automorphisms that keep the source of all chunks, and permute these freely.

    Chunks are divided into blocks of as many as there are elements. An element maps the first chunk of a block to the
    one with the element's number, and the others accordingly.
    """

    @cached_property
    def table(self) -> tuple[tuple[int, ...], ...]:
        """For two elements the number of the one that applies the second, then the first."""
        number = {h: i for i, h in enumerate(self.elements)}
        return tuple(tuple(number[tuple(g[i] for i in h)] for h in self.elements) for g in self.elements)

    def chosen(self, demand: Demand) -> list[int]:
        """Returns one chunk of each orbit: the first of each block."""
        return [c for c in range(demand.chunk_count) if demand.pieces[demand.piece_of[c]].targets][:: self.order]

    def chunk_image(self, demand: Demand, chunk: int, element: int) -> int:
        """Returns the image of a chunk under an element."""
        del demand
        block, place = divmod(chunk, self.order)
        return block * self.order + self.table[element][place]


def turnings(network: Network, demand: Demand) -> Iterator[Turning]:
    """Yields groups that keep the source of a demand of one piece, the largest first, without the trivial one."""
    if len(demand.pieces) != 1:
        return
    piece = demand.pieces[0]
    everyone = piece.targets | {piece.source} == frozenset(range(network.ranks))
    if not everyone:
        return
    identity = tuple(range(network.ranks))
    found = [p for p in automorphisms(network, demand, piece.source) if p != identity]
    most = min(_LARGEST, demand.chunk_count)
    chance = random.Random(0)  # noqa: S311 - nothing secret
    generators = [[p] for p in found] + [chance.sample(found, 2) for _ in range(_PAIRS) if len(found) > 1]
    groups: dict[frozenset[Permutation], int] = {}
    for some in generators:
        group = _generated(some, identity, most)
        if group is not None and demand.chunk_count % len(group) == 0:
            groups.setdefault(group, len(group))
    taken: dict[int, int] = {}
    for group, order in sorted(groups.items(), key=lambda g: (-g[1], sorted(g[0]))):
        taken[order] = taken.get(order, 0) + 1
        if taken[order] <= _OF_AN_ORDER:
            yield Turning(network, (identity, *sorted(group - {identity})))


def _generated(generators: Sequence[Permutation], identity: Permutation, most: int) -> frozenset[Permutation] | None:
    """The group that permutations generate; None if it has more than `most` elements."""
    found, todo = {identity}, [identity]
    while todo:
        p = todo.pop()
        for g in generators:
            q = tuple(g[i] for i in p)
            if q not in found:
                if len(found) >= most:
                    return None
                found.add(q)
                todo.append(q)
    return frozenset(found)
