"""The scratch memory of programs, and limits on it."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from gc3.collectives import count_for, size_blocks
from gc3.support.sizes import format_size, parse_size

if TYPE_CHECKING:
    from gc3._core import Program


def share(program: Program) -> Fraction:
    """Returns the scratch of the rank that needs most, as a part of S, for an S that is divided evenly into chunks."""
    model = program.collective
    return Fraction(max(program.scratch_per_rank, default=0), max(size_blocks(model), 1) * model.chunks)


def needed(program: Program, size: int, itemsize: int = 4) -> int:
    """Returns the bytes of the rank that needs most in a call of `size` bytes.

    Every chunk is as long as the longest, in whole elements of `itemsize` bytes.
    """
    model = program.collective
    elements = -(-count_for(model, size, itemsize) // model.chunks)
    return max(program.scratch_per_rank, default=0) * elements * itemsize


@dataclass(frozen=True, slots=True)
class ScratchLimit:
    """How much scratch memory a rank may use."""

    size: int  # in bytes
    of: int = 0  # in calls of this S in bytes, and in proportion in others; 0: in calls of any S

    def __str__(self) -> str:
        """Returns it as in a command."""
        size, of = (format_size(part).replace(" ", "") for part in (self.size, self.of))
        return f"{size}/{of}" if self.of else size

    def share(self, size: int = 0) -> Fraction:
        """Returns the largest part of S, in calls of `size` bytes."""
        return Fraction(self.size, self.of or size)

    def allows(self, program: Program, size: int) -> bool:
        """Returns whether a program needs no more in calls of `size` bytes, of float32 elements."""
        return share(program) <= self.share() if self.of else needed(program, size) <= self.size


def parse_limit(text: str) -> ScratchLimit:
    """Returns the limit that `text` gives: a size, or a size and the S of the calls.

    >>> parse_limit("64MiB/256MiB").share(), parse_limit("1/4").share(), parse_limit("64MiB").share(1 << 27)
    (Fraction(1, 4), Fraction(1, 4), Fraction(1, 2))
    """
    size, slash, of = text.partition("/")
    found = ScratchLimit(parse_size(size), parse_size(of) if slash else 0)
    if slash and not found.of:
        raise ValueError(f"'{text}': the S of a call is above 0")
    return found
