"""Automorphisms: permutations of the ranks that change neither the network nor the demand.

Solvers gain from groups that act freely (only the identity fixes a rank): a schedule that is invariant under such a
group is given by the part that begins on one rank of each orbit. For linear programs nothing is lost by requiring that,
since schedules can be averaged. For whole chunks something may be lost, so a search that finds nothing must try again
with a smaller group.

A demand with one source has automorphisms that keep the source and permute its chunks (`turnings`). A permutation that
fixes the root cannot act freely on the ranks, but it can on the chunks. If there are as many chunks as the group has
elements (or a multiple), the trees of all chunks are images of each other, and only one has to be found. For example,
the four links of a torus serve four chunks whose trees are quarter turns of each other.
"""

from __future__ import annotations

import operator
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias, cast

import numpy as np
import numpy.typing as npt

from gc3.synth.problem.demand import Demand, Send
from gc3.synth.problem.network import Network

Permutation: TypeAlias = "tuple[int, ...]"

_SYMMETRIC = ("allgather", "alltoall")  # any permutation of the ranks keeps them
_SEARCH_SECONDS = 2.0
_SEARCH_ELEMENTS = 400
MANY_RANKS = 128  # with so many, the first group that moves every rank to every other one is taken
_AT_ONCE = 1 << 22  # images of edges
_LARGEST = 24
_PAIRS = 60
_OF_AN_ORDER = 2  # groups of the same order to try


@dataclass(frozen=True)
class Group:
    """A group of automorphisms that acts freely on the ranks; the identity is its first element."""

    network: Network  # the network it acts on
    elements: tuple[Permutation, ...]  # for each element the image of every rank

    @property
    def order(self) -> int:
        """The number of its elements."""
        return len(self.elements)

    @cached_property
    def edges(self) -> tuple[Permutation, ...]:
        """For each element the image of every edge."""
        every = np.arange(len(self.network.edges))
        return tuple(tuple(self.images(every, [i])[0].tolist()) for i in range(self.order))

    def images(self, edges: npt.NDArray[np.integer], elements: Sequence[int]) -> npt.NDArray[np.int32]:
        """Returns for each of some elements the images of some edges."""
        moved = self._array[list(elements)]
        src, dst = self.network.ends
        return self.network.edge_numbers[moved[:, src[edges]], moved[:, dst[edges]]]

    @cached_property
    def _array(self) -> npt.NDArray[np.int64]:
        return np.array(self.elements)

    @cached_property
    def home(self) -> tuple[tuple[int, int], ...]:
        """For each rank the first rank of its orbit, and the element that takes that one to it."""
        found: dict[int, tuple[int, int]] = {}
        for rank in range(self.network.ranks):
            if rank not in found:
                found.update({h[rank]: (rank, i) for i, h in enumerate(self.elements)})
        return tuple(found[rank] for rank in range(self.network.ranks))

    @cached_property
    def smaller(self) -> Group | None:
        """A group of half the order or less, to try if this one finds nothing; None for the trivial one."""
        if self.order == 1:
            return None
        return Group(self.network, tuple(_grown(self.elements[1:], self.elements[0], self.order // 2)))

    def descending(self) -> Iterator[Group]:
        """Yields the groups to try in turn: this one, smaller ones, and the trivial one last."""
        group: Group | None = self
        while group is not None:
            yield group
            group = group.smaller

    def chosen(self, demand: Demand) -> list[int]:
        """Returns one chunk of each orbit of chunks that must be sent."""
        return [
            chunk
            for i, piece in enumerate(demand.pieces)
            if self.home[piece.source][0] == piece.source and piece.targets
            for chunk in range(demand.first[i], demand.first[i + 1])
        ]

    def chunk_image(self, demand: Demand, chunk: int, element: int) -> int:
        """Returns the image of a chunk under an element."""
        if element == 0:
            return chunk
        moved = self.elements[element]
        i = demand.piece_of[chunk]
        piece = demand.pieces[i]
        only = demand.only_piece
        if only is not None:  # only one piece can be the image
            image = only[moved[piece.source]]
        else:
            image = demand.piece_at[moved[piece.source], frozenset(moved[t] for t in piece.targets)]
        return demand.first[image] + chunk - demand.first[i]

    def spread(self, demand: Demand, sends: Iterable[tuple[int, Send]]) -> Iterator[tuple[int, Send]]:
        """Yields sends of chunks of the first ranks of orbits, with their steps, and the images of other ranks."""
        takes: dict[int, list[int]] = {}  # the first rank of an orbit -> the elements that take it to all
        for home, element in self.home:
            takes.setdefault(home, []).append(element)
        for step, (chunk, src, dst) in sends:
            for element in takes[demand.pieces[demand.piece_of[chunk]].source]:
                moved = self.elements[element]
                yield step, (self.chunk_image(demand, chunk, element), moved[src], moved[dst])

    @cached_property
    def inverse(self) -> tuple[int, ...]:
        """For each element the number of its inverse."""
        number = {h: i for i, h in enumerate(self.elements)}
        return tuple(number[_inverse(h)] for h in self.elements)

    @cached_property
    def edge_orbits(self) -> tuple[int, ...]:
        """For each edge the first edge of its orbit."""
        back = np.argsort(self._array, axis=1)  # the inverse of each element
        home, element = (np.array([pair[i] for pair in self.home], np.int64) for i in (0, 1))
        src, dst = self.network.ends
        # Only one element takes the sender home, so where it takes the receiver identifies the orbit.
        orbits: list[int] = (home[src] * self.network.ranks + back[element[src], dst]).tolist()
        first: dict[int, int] = {}
        return tuple(first.setdefault(orbit, edge) for edge, orbit in enumerate(orbits))

    @cached_property
    def _images(self) -> tuple[dict[int, list[int]], ...]:
        """For the first bound of each orbit the bounds of the orbit, each with the elements that take it there."""
        known: set[int] = set()
        found: list[dict[int, list[int]]] = []
        for b, members in enumerate(self.network.members):
            if b in known:
                continue
            orbit: dict[int, list[int]] = {}
            at_once = max(_AT_ONCE // len(members), 1)
            for begin in range(0, self.order, at_once):
                images = self.images(members, range(begin, min(begin + at_once, self.order)))
                for element, row in enumerate(np.sort(images, axis=1), begin):
                    orbit.setdefault(self.network.bound_of_members[row.tobytes()], []).append(element)
            known.update(orbit)
            found.append(orbit)
        return tuple(found)

    @cached_property
    def bounds(self) -> tuple[tuple[int, int], ...]:
        """One bound of each orbit of bounds, and the size of the orbit."""
        return tuple((min(orbit), len(orbit)) for orbit in self._images)

    @cached_property
    def bound_orbits(self) -> tuple[int, ...]:
        """For each bound the position in `bounds` of its orbit."""
        found = {b: i for i, orbit in enumerate(self._images) for b in orbit}
        return tuple(found[b] for b in range(len(self.network.bounds)))

    @cached_property
    def moving(self) -> Group:
        """A subgroup whose elements move bounds that edges share, so that few images of a send share one."""
        identity = self.elements[0]
        fixing = {self.elements[e] for orbit in self._images for e in orbit[min(orbit)]} - {identity}
        group, generators, known = [identity], list[Permutation](), fixing | {identity}
        for p in self.elements:
            larger = None if p in known else _closure(group, [*generators, p], self.order)
            if larger is not None and fixing.isdisjoint(larger):
                group, generators, known = larger, [*generators, p], fixing | set(larger)
        return Group(self.network, tuple(group))


def trivial(network: Network) -> Group:
    """Returns the group of the identity alone."""
    return Group(network, (tuple(range(network.ranks)),))


def largest_group(network: Network, demand: Demand, *, largest: int = 1 << 12) -> Group:
    """Returns the largest free group that can be found quickly."""
    return Group(network, tuple(_free_group(network, demand, largest)))


def is_automorphism(network: Network, demand: Demand, permutation: Sequence[int]) -> bool:
    """Returns whether a permutation of the ranks maps edges to edges, bounds to equal bounds and pieces to pieces."""
    moved = np.array(permutation)
    src, dst = network.ends
    image = network.edge_numbers[moved[src], moved[dst]]
    kind = network.edge_kinds
    if (image < 0).any() or (kind[image] != kind).any():
        return False
    for members, (_, chunks) in () if network.point_to_point else zip(network.members, network.bounds, strict=True):
        other = network.bound_of_members.get(np.sort(image[members]).tobytes())
        if other is None or network.bounds[other][1] != chunks:
            return False
    return _keeps(demand, permutation)


def _keeps(demand: Demand, permutation: Sequence[int]) -> bool:
    if demand.name in _SYMMETRIC:
        return True
    if len({p.source for p in demand.pieces}) == 1 and permutation[demand.pieces[0].source] != demand.pieces[0].source:
        return False
    pieces = {(p.source, p.targets, p.count) for p in demand.pieces}
    if len(pieces) < len(demand.pieces):
        return False  # pieces with the same source and targets are not supported
    return all(
        (permutation[p.source], frozenset(permutation[t] for t in p.targets), p.count) in pieces for p in demand.pieces
    )


def _free_group(network: Network, demand: Demand, largest: int) -> list[Permutation]:
    """The largest free group that can be found quickly: from shifts and flips of the numbering, then from a search."""
    identity = tuple(range(network.ranks))
    largest = min(largest, network.ranks)
    if len({p.source for p in demand.pieces}) == 1 or len({p.targets for p in demand.pieces}) == 1:
        return [identity]  # a root must be fixed
    if network.ranks >= MANY_RANKS:
        quick = _first_free(network, demand, identity, largest)
        if len(quick) == largest:
            return quick
    natural = [p for p in _shifts(network.ranks) if is_automorphism(network, demand, p)]
    best = _grown(natural, identity, largest)
    if len(best) < largest:
        found = [p for p in automorphisms(network, demand) if _keeps(demand, p)]
        for candidates in (natural + found, found):
            grown = _grown(candidates, identity, largest)
            best = max(best, grown, key=len)
    return best


def _first_free(network: Network, demand: Demand, identity: Permutation, largest: int) -> list[Permutation]:
    """The free group to which shifts are added as they come; those that are in it already need no check."""
    group, generators = [identity], list[Permutation]()
    known = {identity}
    for p in _shifts(network.ranks):
        if p not in known and is_automorphism(network, demand, p):
            larger = _closure(group, [*generators, p], largest)
            if larger is not None:
                group, generators, known = larger, [*generators, p], set(larger)
        if len(group) == largest:
            break
    return group


def _shifts(ranks: int) -> Iterator[Permutation]:
    """Shifts by one of a digit of the rank's number, in every mixed radix."""
    for low in (d for d in range(1, ranks) if ranks % d == 0):
        for size in (d for d in range(2, ranks // low + 1) if ranks // low % d == 0):
            yield tuple(r - r % (low * size) + (r % (low * size) + low) % (low * size) for r in range(ranks))


def _grown(candidates: Sequence[Permutation], identity: Permutation, largest: int) -> list[Permutation]:
    """A free group made of candidates; each is added if the group stays free."""
    best = [identity]
    free = [p for p in candidates if _moves_all(p, identity)]
    for first in range(min(len(free), 6)):
        group, generators = [identity], list[Permutation]()
        for p in free[first:] + free[:first]:
            larger = None if p in group else _closure(group, [*generators, p], largest)
            if larger is not None:
                group, generators = larger, [*generators, p]
            if len(group) == largest:
                return group
        best = max(best, group, key=len)
    return best


def _moves_all(permutation: Permutation, identity: Permutation) -> bool:
    return not any(map(operator.eq, permutation, identity))


def _closure(group: Sequence[Permutation], generators: Sequence[Permutation], largest: int) -> list[Permutation] | None:
    """The group that all `generators` generate; all but the last generate `group`. None if too large or not free.

    It consists of cosets of `group`, one per element, until every element times a generator is in one (Dimino).
    """
    identity = group[0]
    times = [_after(g) for g in generators]
    found, cosets = {*group}, [identity]
    for one in cosets:
        for times_generator in times:
            more = times_generator(one)
            if more in found:
                continue
            coset = list(map(_after(more), group))
            if len(found) + len(coset) > largest or not all(_moves_all(p, identity) for p in coset):
                return None
            found.update(coset)
            cosets.append(more)
    return [identity, *sorted(found - {identity})]


def _after(first: Permutation) -> Callable[[Permutation], Permutation]:
    """A function that maps a permutation p to the permutation that applies `first`, then p."""
    return cast("Callable[[Permutation], Permutation]", operator.itemgetter(*first))


def _inverse(permutation: Permutation) -> Permutation:
    found = [0] * len(permutation)
    for i, p in enumerate(permutation):
        found[p] = i
    return tuple(found)


def automorphisms(network: Network, demand: Demand, fixed: int | None = None) -> list[Permutation]:
    """Returns automorphisms of a network by backtracking, as many as can be found in a short time.

    Ranks are mapped to ranks that are sources and targets of as much of the demand, which may differ itself. One rank
    may be `fixed`.
    """
    ranks = network.ranks
    first = 0 if fixed is None else fixed
    number: dict[object, int] = {}  # compared often, for which fractions are slow
    kind: dict[tuple[int, int], int] = {}
    for edge, by in zip(network.edges, network.bounds_of, strict=True):
        what = tuple(sorted((len(network.bounds[b][0]), network.bounds[b][1]) for b in by))
        kind[edge] = number.setdefault(what, len(number))
    roles: list[list[tuple[bool, int, int]]] = [[] for _ in range(ranks)]
    for piece in () if demand.name in _SYMMETRIC else demand.pieces:
        for r in piece.targets | {piece.source}:
            roles[r].append((r == piece.source, piece.count, len(piece.targets)))
    # What a rank has in common with its image: distances to others, kinds of edges, and what it sends and needs.
    profile = [
        (
            sorted(network.distance[r]),
            sorted(roles[r]),
            sorted(kind[network.edges[e]] for e in network.outgoing[r]),
            sorted(kind[network.edges[e]] for e in network.incoming[r]),
        )
        for r in range(ranks)
    ]
    order = sorted(range(ranks), key=lambda r: network.distance[first][r])
    image: dict[int, int] = {}
    taken: set[int] = set()
    found: list[Permutation] = []
    deadline = time.monotonic() + _SEARCH_SECONDS

    def fits(rank: int, to: int) -> bool:
        if to in taken or profile[rank] != profile[to]:
            return False
        return all(
            kind.get((rank, a)) == kind.get((to, b)) and kind.get((a, rank)) == kind.get((b, to))
            for a, b in image.items()
        )

    def extend(depth: int) -> None:
        if depth == ranks:
            candidate = tuple(image[r] for r in range(ranks))
            if network.point_to_point or is_automorphism(network, _NOTHING, candidate):
                found.append(candidate)
            return
        for to in range(ranks):
            if len(found) >= limit or time.monotonic() > deadline:
                return
            if fits(order[depth], to):
                image[order[depth]] = to
                taken.add(to)
                extend(depth + 1)
                taken.discard(to)
                del image[order[depth]]

    # A few for each image of the first rank: they differ more than automorphisms found in one go.
    places = range(ranks) if fixed is None else (fixed,)
    for to in places:
        limit = len(found) + max(_SEARCH_ELEMENTS // len(places), 4)
        if fits(order[0], to):
            image[order[0]] = to
            taken.add(to)
            extend(1)
            taken.discard(to)
            del image[order[0]]
    return found


_NOTHING = Demand("allgather", 0, 1, 0, ())


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
