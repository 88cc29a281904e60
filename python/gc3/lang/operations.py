"""What programs call by name, with signatures that Python's tools can read: those of compiled functions they cannot."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, TypeAlias

from gc3 import _core

if TYPE_CHECKING:
    from gc3._core import ChunkRef
    from gc3._core import chunk as chunk  # noqa: PLC0414  exported from here

_Place: TypeAlias = "int | tuple[int, int]"


def _chunk(  # pyright: ignore[reportUnusedFunction]
    rank: _Place,
    buffer: str,
    index: _Place,
    count: int | None = None,
    *,
    size: int | None = None,
    sz: int | None = None,
) -> ChunkRef:
    """Refers to `count` consecutive chunks that are now at (rank, buffer, index) (002 table 1).

    Args:
        rank: A rank, or its (node, gpu).
        buffer: "input", "output", "scratch", or the name of a further scratch buffer; "in", "out" and "sc" for short.
            It may also stand first (000 table 1); the reference may then name an empty place, to assign() to.
        index: The first chunk, or its (node, gpu).
        count: How many; 1 unless given.
        size: Another name of `count`.
        sz: Another name of `count`.

    Raises:
        gc3.UserError: There is no such place, nothing is there yet, or no program is being traced.
    """
    return _core.chunk(rank, buffer, index, count, size=size, sz=sz)


if not TYPE_CHECKING:
    # A partial function adds no frame, so the line that an operation belongs to is still the caller's.
    chunk = functools.update_wrapper(functools.partial(_core.chunk), _chunk)
    chunk.__name__ = chunk.__qualname__ = "chunk"


class parallelize(_core.parallelize):  # noqa: N801  a directive of the language
    """`with parallelize(n):` runs the operations inside as n parallel parts, each on one n-th of their data.

    Blocks nest: their factors multiply (002 section 5.1).
    """

    def __init__(self, factor: int) -> None:
        """Takes the number of parts.

        Raises:
            gc3.UserError: It is below 1.
        """
        super().__init__(factor)
