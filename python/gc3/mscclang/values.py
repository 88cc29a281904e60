"""The symbolic contents of buffers in MSCCLang: which inputs a place holds."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class Buffer(Enum):
    """The buffers of a rank; any other key is the name of a scratch buffer."""

    input = "i"
    output = "o"
    scratch = "s"

    def __str__(self) -> str:
        """Returns the letter of MSCCL XML."""
        return self.value


class ThreadblockPolicy(Enum):
    """Who assigns threadblocks: the compiler, or sendtb= and recvtb= of the operations."""

    auto = "auto"
    manual = "manual"

    def __str__(self) -> str:
        """Returns its name."""
        return self.value


@dataclass(frozen=True, order=True)
class Chunk:
    """An input chunk: where it comes from and, for programs that ask, where it goes. Its origin alone identifies it."""

    origin_rank: int
    origin_index: int
    dst_rank: int = field(default=-1, compare=False)
    dst_index: int = field(default=-1, compare=False)

    def reduce(self, *given: Chunk | ReduceChunk | int) -> ReduceChunk:
        """Returns the sum with the last argument; earlier versions had no other, later ones a rank before it."""
        return ReduceChunk([self]).reduce(*given)


class ReduceChunk:
    """A sum of input chunks; each counts as often as it was added."""

    def __init__(self, *given: int | list[Chunk] | tuple[Chunk, ...]) -> None:
        """Takes the chunks as the last argument; later versions have a rank before it."""
        last = given[-1] if given else ()
        self.chunks: tuple[Chunk, ...] = () if isinstance(last, int) else tuple(last)

    def reduce(self, *given: Chunk | ReduceChunk | int) -> ReduceChunk:
        """Returns the sum with the last argument."""
        added = given[-1]
        if isinstance(added, Chunk):
            return ReduceChunk((*self.chunks, added))
        return ReduceChunk(self.chunks + added.chunks) if isinstance(added, ReduceChunk) else self

    def __eq__(self, other: object) -> bool:
        """Returns whether both are sums of the same chunks."""
        return isinstance(other, ReduceChunk) and sorted(self.chunks) == sorted(other.chunks)

    def __hash__(self) -> int:
        """Returns the same number for the same chunks in any order."""
        return hash(frozenset(self.chunks))

    def __repr__(self) -> str:
        """Returns the chunks in order."""
        return f"ReduceChunk({sorted(self.chunks)})"
