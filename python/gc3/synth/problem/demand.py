"""The demand of a collective, independent of a network: pieces of data, each with its source and its targets.

C is the number of chunks that one rank's input is cut into (for a scatter, the root's), as in the cost model of 001
section 3.6: with L bytes of input and R rounds, the bandwidth cost is R/C times the time for L bytes on a unit link.

A problem is a collective as demands without reductions (001 section 3.5). The inverse of a schedule that takes a chunk
from one rank to several is a reduction: on the reversed network, their contributions come together on that rank. So a
chunk to which several ranks contribute is first reduced on one of the ranks that need it, its root, and then goes to
the others. This is a reduce-scatter and an all-gather for an all-reduce, and the same for custom collectives, in which
every chunk may have other contributors and other targets.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from types import MappingProxyType
from typing import TypeAlias

from gc3 import collectives, errors
from gc3.collectives import Collective, InputChunk
from gc3.lang.stepwise import Layout

# Collectives whose inputs are one block for each rank: C is a multiple of the number of ranks.
_BLOCKWISE = ("alltoall", "scatter", "reducescatter", "allreduce")

Send: TypeAlias = "tuple[int, int, int]"  # chunk, from, to


@dataclass(frozen=True, slots=True)
class Piece:
    """Data with the same route: `count` chunks that begin on `source` and must reach all of `targets`.

    Attributes:
        source: The rank that has them before.
        targets: The other ranks that must have them after.
        count: How many chunks.
        stays: Whether the source must have them after, too.
    """

    source: int
    targets: frozenset[int]
    count: int
    stays: bool = True


@dataclass(frozen=True)
class Demand:
    """A non-combining collective for a number of ranks and chunks.

    Attributes:
        name: The collective.
        ranks: Number of ranks.
        chunks: C, see the module.
        root: The root of a rooted collective, else 0.
        pieces: The pieces. Chunks are numbered consecutively, piece by piece.
    """

    name: str
    ranks: int
    chunks: int
    root: int
    pieces: tuple[Piece, ...]

    @cached_property
    def first(self) -> tuple[int, ...]:
        """The number of the first chunk of each piece."""
        begin = [0]
        for piece in self.pieces:
            begin.append(begin[-1] + piece.count)
        return tuple(begin)

    @cached_property
    def piece_of(self) -> tuple[int, ...]:
        """The piece of each chunk."""
        return tuple(i for i, piece in enumerate(self.pieces) for _ in range(piece.count))

    @cached_property
    def piece_at(self) -> dict[tuple[int, frozenset[int]], int]:
        """The pieces by source and targets."""
        return {(piece.source, piece.targets): i for i, piece in enumerate(self.pieces)}

    @cached_property
    def only_piece(self) -> dict[int, int] | None:
        """The piece of each source; None if a source has several."""
        found = {piece.source: i for i, piece in enumerate(self.pieces)}
        return found if len(found) == len(self.pieces) else None

    @cached_property
    def given(self) -> dict[int, dict[int, int]]:
        """For each source the number of chunks that it gives each target."""
        found: dict[int, dict[int, int]] = {}
        for piece in self.pieces:
            for target in piece.targets:
                amounts = found.setdefault(piece.source, {})
                amounts[target] = amounts.get(target, 0) + piece.count
        return found

    @cached_property
    def needed(self) -> dict[int, dict[int, int]]:
        """For each target the number of chunks that it needs of each source."""
        found: dict[int, dict[int, int]] = {}
        for piece in self.pieces:
            for target in piece.targets:
                amounts = found.setdefault(target, {})
                amounts[piece.source] = amounts.get(piece.source, 0) + piece.count
        return found

    @property
    def chunk_count(self) -> int:
        """G of 001 section 3.2: the number of chunks."""
        return self.first[-1]

    @cached_property
    def one_sided(self) -> bool:
        """Whether all chunks begin on one rank, or all go to one rank."""
        moving = [p for p in self.pieces if p.targets and p.count]
        return len({p.source for p in moving}) <= 1 or len({p.targets for p in moving}) <= 1

    @cached_property
    def routes(self) -> bool:
        """Whether every piece goes to a single rank, so that no chunk is copied."""
        return all(len(piece.targets) <= 1 for piece in self.pieces)


@dataclass(frozen=True, slots=True)
class Holding:
    """How many chunks a rank may hold in scratch in a step of a schedule."""

    room: int  # the chunks
    targets: bool  # whether chunks count on ranks that need them, too, as partial sums do in an inverse schedule


# Per non-combining collective: the pieces for P ranks, C chunks and a root, and the divisor of C.
_Make = Callable[[int, int, int], "list[Piece]"]


def _allgather(ranks: int, chunks: int, _root: int) -> list[Piece]:
    everyone = frozenset(range(ranks))
    return [Piece(r, everyone - {r}, chunks) for r in range(ranks)]


def _alltoall(ranks: int, chunks: int, _root: int) -> list[Piece]:
    each = chunks // ranks
    return [Piece(src, frozenset({dst}) - {src}, each, src == dst) for src in range(ranks) for dst in range(ranks)]


def _broadcast(ranks: int, chunks: int, root: int) -> list[Piece]:
    return [Piece(root, frozenset(range(ranks)) - {root}, chunks)]


def _gather(ranks: int, chunks: int, root: int) -> list[Piece]:
    return [Piece(src, frozenset({root}) - {src}, chunks, src == root) for src in range(ranks)]


def _scatter(ranks: int, chunks: int, root: int) -> list[Piece]:
    return [Piece(root, frozenset({dst}) - {root}, chunks // ranks, dst == root) for dst in range(ranks)]


def _alltonext(ranks: int, chunks: int, _root: int) -> list[Piece]:
    return [Piece(r, frozenset({r + 1} if r + 1 < ranks else ()), chunks, stays=False) for r in range(ranks)]


_MAKE: Mapping[str, _Make] = MappingProxyType(
    {
        "allgather": _allgather,
        "alltoall": _alltoall,
        "broadcast": _broadcast,
        "gather": _gather,
        "scatter": _scatter,
        "alltonext": _alltonext,
    }
)
# Combining collectives and the collectives they are built from, on the reversed network (001 section 3.5).
BASE: Mapping[str, str] = MappingProxyType(
    {"reduce": "broadcast", "reducescatter": "allgather", "allreduce": "allgather"}
)
NAMES = (*_MAKE, *BASE)


def least_chunks(name: str, ranks: int) -> int:
    """Returns the number that C must be a multiple of.

    >>> least_chunks("alltoall", 8), least_chunks("allgather", 8)
    (8, 1)
    """
    return ranks if name in _BLOCKWISE else 1


def check_chunks(name: str, ranks: int, chunks: int) -> None:
    """Refuses a number of chunks that does not divide into the collective's blocks.

    Raises:
        gc3.UserError: `chunks` is not a positive multiple of `least_chunks`.
    """
    errors.whole(chunks, "chunks", 1, 1 << 20)
    unit = least_chunks(name, ranks)
    if chunks % unit:
        raise errors.error(
            "BadArgument", f"the input of {name} is {ranks} blocks, so chunks={chunks} must be a multiple of {ranks}"
        )


def builtin(name: str, ranks: int, chunks: int, root: int = 0) -> Demand:
    """Returns the demand of a built-in non-combining collective.

    Raises:
        gc3.UserError: There is no such collective, or `chunks` or `root` is invalid for it.

    >>> builtin("alltoall", 4, 8).pieces[1]
    Piece(source=0, targets=frozenset({1}), count=2, stays=False)
    """
    if name not in _MAKE:
        raise errors.error("BadCollective", f"'{name}' is not one of {', '.join(NAMES)}")
    check_chunks(name, ranks, chunks)
    errors.whole(root, "root", 0, ranks - 1)
    return Demand(name, ranks, chunks, root, tuple(_MAKE[name](ranks, chunks, root)))


@dataclass(frozen=True, slots=True)
class Item:
    """Chunks of a collective with the same purpose."""

    before: frozenset[int]  # the ranks that have them before, or contributions to them
    after: frozenset[int]  # the ranks that must have them, or the sum of all contributions, after


@dataclass(frozen=True)
class Problem:
    """A collective for a number of ranks and chunks. Its chunks have the same numbers in both demands."""

    name: str  # the collective
    ranks: int  # number of ranks
    chunks: int  # C, the chunks of a rank's input, or of each chunk of a custom collective
    root: int  # the root of a rooted collective, else 0
    # The demand whose inverse on the reversed network brings contributions together; None if nothing is reduced.
    reduced: Demand | None
    spread: Demand | None  # the demand that distributes data; None if sums stay where they are
    items: tuple[Item, ...]  # for each piece of these demands, its purpose
    layout: Layout | None = None  # where a custom collective has its data; None for built-in ones

    @property
    def demands(self) -> tuple[Demand, ...]:
        """Those of `reduced` and `spread` that there are."""
        return tuple(d for d in (self.reduced, self.spread) if d is not None)

    @cached_property
    def contents(self) -> tuple[Item, ...]:
        """The purpose of each chunk."""
        numbering = self.demands[0]
        return tuple(self.items[i] for i in numbering.piece_of)

    @property
    def largest(self) -> int:
        """The chunks of the largest buffer of a rank."""
        counts = Counter[tuple[bool, int]]()
        for item in self.contents:
            counts.update((False, rank) for rank in item.before)
            counts.update((True, rank) for rank in item.after)
        return max(counts.values(), default=1)

    def diameter(self, distance: Sequence[Sequence[int]]) -> int:
        """Returns the largest distance from a contributor to a rank that needs the sum."""
        pairs = {(item.before, item.after) for item in self.items}
        return max((distance[a][b] for before, after in pairs for a in before for b in after), default=0)


def builtin_problem(name: str, ranks: int, chunks: int, root: int = 0) -> Problem:
    """Returns the problem of a built-in collective.

    Raises:
        gc3.UserError: There is no such collective, or `chunks` or `root` is invalid for it.

    >>> builtin_problem("reduce", 4, 2).reduced.pieces[0].targets == frozenset({1, 2, 3})
    True
    """
    check_chunks(name, ranks, chunks)
    everyone = frozenset(range(ranks))
    scale = ranks if name in ("reducescatter", "allreduce") else 1
    base = builtin(BASE.get(name, name), ranks, chunks // scale, root)
    if name == "allreduce":
        return Problem(name, ranks, chunks, 0, base, base, tuple(Item(everyone, everyone) for _ in base.pieces))
    if name in BASE:
        items = tuple(Item(everyone, frozenset({p.source})) for p in base.pieces)
        return Problem(name, ranks, chunks, root, base, None, items)
    items = tuple(Item(frozenset({p.source}), p.targets | {p.source} if p.stays else p.targets) for p in base.pieces)
    return Problem(name, ranks, chunks, root, None, base, items)


def custom_problem(collective: Collective, chunks: int = 1) -> Problem:
    """Returns the problem of a custom collective; each of its chunks is cut into `chunks`.

    Raises:
        gc3.UserError: It cannot be synthesized; the message says why.
    """
    data = collective.data
    if data is None:
        raise errors.error("BadCollective", f"'{collective.name}' is built in: name it instead")
    if collective.open:
        raise errors.error("BadCollective", f"'{collective.name}' does not say what its outputs must hold")
    errors.whole(chunks, "chunks", 1, 1 << 20)
    sums = _Sums(collective.name, data.inputs)
    outputs = [[sums.none] * size for size in data.outputs]
    slots = ((rank, i) for rank, size in enumerate(data.outputs) for i in range(size))
    for (rank, i), (begin, end) in zip(slots, pairwise(data.begin), strict=True):
        if begin < end:
            outputs[rank][i] = sums.needed(data.terms[begin:end], rank, i)
    inputs = sums.inputs()
    order = _order([*inputs, *([a for a in some if a != sums.none] for some in outputs)])
    items = [Item(frozenset(r for r, _ in sums.terms[a]), frozenset(sums.after[a])) for a in order]
    roots = _roots(items)
    ranks, name = len(data.inputs), custom_name(collective.name)
    combines = any(len(item.before) > 1 for item in items)
    gathered = [
        Piece(root, item.before - {root} if len(item.before) > 1 else frozenset(), chunks)
        for item, root in zip(items, roots, strict=True)
    ]
    spread = [
        Piece(root, item.after - {root}, chunks, root in item.after) for item, root in zip(items, roots, strict=True)
    ]
    stays = combines and not any(p.targets for p in spread)
    number = {address: i for i, address in enumerate(order)}
    return Problem(
        name,
        ranks,
        chunks,
        0,
        Demand(f"{name}, reduced", ranks, chunks, 0, tuple(gathered)) if combines else None,
        None if stays else Demand(name, ranks, chunks, 0, tuple(spread)),
        tuple(items),
        Layout(
            collectives.cut(collective, chunks),
            tuple(tuple(number[a] * chunks + k for a in listed for k in range(chunks)) for listed in inputs),
            tuple(
                tuple(number[a] * chunks + k if a in number else None for a in listed for k in range(chunks))
                for listed in outputs
            ),
        ),
    )


def custom_name(name: str) -> str:
    """Returns the name of a custom collective, changed if a built-in one has the same name.

    >>> custom_name("gatherv"), custom_name("reduce")
    ('gatherv', 'custom-reduce')
    """
    return f"custom-{name}" if name in NAMES else name


class _Sums:
    """The different sums of a custom collective, numbered: which chunks of inputs are in them, and who needs them."""

    none = -1

    def __init__(self, name: str, inputs: Sequence[int]) -> None:
        self.name = name
        self.sizes = inputs
        self.terms: list[tuple[InputChunk, ...]] = []
        self.after: list[set[int]] = []
        self.sum_of: dict[InputChunk, int] = {}
        self._known: dict[tuple[InputChunk, ...], int] = {}

    def needed(self, terms: Iterable[InputChunk], rank: int, index: int) -> int:
        """Returns the number of the sum that an output chunk must hold."""
        key = tuple(sorted(terms))
        where = f"'{self.name}': output chunk {index} of rank {rank}"
        if len({r for r, _ in key}) < len(key):
            twice = next(a[0] for a, b in pairwise(key) if a[0] == b[0])
            raise errors.error("BadCollective", f"{where} reduces several chunks of rank {twice}; give it their sum")
        if key not in self._known:
            for term in key:
                if term in self.sum_of:
                    raise errors.error(
                        "BadCollective",
                        f"{where} needs chunk {term[1]} of rank {term[0]}, which is in another sum, too; give the rank "
                        "a second chunk with the same data",
                    )
            self._known[key] = self._add(key)
        number = self._known[key]
        self.after[number].add(rank)
        return number

    def inputs(self) -> list[list[int]]:
        """Returns the sums that the chunks of each rank are in; what nobody needs is a sum of its own."""
        return [
            [self.sum_of[rank, i] if (rank, i) in self.sum_of else self._add(((rank, i),)) for i in range(size)]
            for rank, size in enumerate(self.sizes)
        ]

    def _add(self, key: tuple[InputChunk, ...]) -> int:
        self.terms.append(key)
        self.after.append(set())
        for term in key:
            self.sum_of[term] = len(self.terms) - 1
        return len(self.terms) - 1


def _order(lists: Iterable[Sequence[int]]) -> list[int]:
    """Returns all numbers, each list's in its order if that is possible: only then other tools' files can say it."""
    after: dict[int, set[int]] = {}
    for listed in lists:
        for number in listed:
            after.setdefault(number, set())
        for a, b in pairwise(listed):
            if a != b:
                after[a].add(b)
    waiting = Counter(b for followers in after.values() for b in followers)
    ready = [number for number in after if not waiting[number]]
    heapq.heapify(ready)
    found: list[int] = []
    while ready:
        number = heapq.heappop(ready)
        found.append(number)
        for b in after[number]:
            waiting[b] -= 1
            if not waiting[b]:
                heapq.heappush(ready, b)
    return found if len(found) == len(after) else sorted(after)


def _roots(items: Iterable[Item]) -> list[int]:
    """Returns the rank on which each chunk comes together: one that needs it, each equally often."""
    used: Counter[int] = Counter()
    found: list[int] = []
    for item in items:
        root = min(item.before)
        if len(item.before) > 1:
            root = min(item.after & item.before or item.after, key=lambda r: (used[r], r))
            used[root] += 1
        found.append(root)
    return found
