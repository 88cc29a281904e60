"""The demand of a collective, independent of a network: pieces of data, each with its source and its targets.

C is the number of chunks that one rank's input is cut into (for a scatter, the root's), as in the cost model of 001
section 3.6: with L bytes of input and R rounds, the bandwidth cost is R/C times the time for L bytes on a unit link.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

from gc3 import errors


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

    @property
    def chunk_count(self) -> int:
        """G of 001 section 3.2: the number of chunks."""
        return self.first[-1]

    @cached_property
    def routes(self) -> bool:
        """Whether every piece goes to a single rank, so that no chunk is copied."""
        return all(len(piece.targets) <= 1 for piece in self.pieces)


@dataclass(frozen=True, slots=True)
class Holding:
    """How many chunks a rank may hold in scratch in a step of a schedule.

    Attributes:
        room: The chunks.
        targets: Whether chunks count on ranks that need them, too, as partial sums do in an inverse schedule.
    """

    room: int
    targets: bool


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
# Collectives whose inputs are one block for each rank: C is a multiple of the number of ranks.
_BLOCKWISE = ("alltoall", "scatter", "reducescatter", "allreduce")
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
