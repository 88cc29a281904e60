"""The functions that programs call, with signatures that Python's tools can read (not those of compiled functions)."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, TypeAlias

from gc3 import _core
from gc3.support.public import public

if TYPE_CHECKING:
    from gc3._core import ChunkRef
    from gc3._core import chunk as chunk  # noqa: PLC0414  exported from here
    from gc3._core import me as me  # noqa: PLC0414
    from gc3._core import next_step as next_step  # noqa: PLC0414

_Place: TypeAlias = "int | _core.Coordinate | tuple[int | _core.Coordinate, ...]"


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
            It may also be the first argument (000 table 1); the location may then be empty, as a target of assign().
        index: The first chunk, or its (node, gpu).
        count: Number of chunks; 1 by default.
        size: Another name of `count`.
        sz: Another name of `count`.

    Raises:
        gc3.UserError: The location does not exist or is uninitialised, or no program is being traced.
    """
    return _core.chunk(rank, buffer, index, count, size=size, sz=sz)


def _me(*shape: int) -> tuple[_core.Coordinate, ...]:  # pyright: ignore[reportUnusedFunction]
    """Writes the program from the view of one rank, the same on all of them, and returns the coordinates of that rank.

    ``node, gpu = me(N, G)`` is for N nodes of G GPUs. Loops then go over offsets: ``(node + a, gpu + b)`` is another
    rank, and ``gpu * N + node`` is an index that depends on the rank; what is added to a coordinate counts modulo its
    number of values. An operation stands for that of every rank, all done at once.

    Args:
        *shape: The number of values of each coordinate; their product is the number of ranks.

    Raises:
        gc3.UserError: The ranks are others, the collective treats some rank differently, or a chunk is used already.
    """
    return _core.me(*shape)


def _next_step() -> None:  # pyright: ignore[reportUnusedFunction]
    """Begins the next step of a schedule: where operations share a threadblock, those of earlier steps come first.

    Without steps, the compiler orders them by the depth of their dependencies (002 section 5.2). That starts the first
    hops of all chunks before the second hops. A schedule that pipelines chunks wants another order.

    Raises:
        gc3.UserError: No program is being traced.
    """
    _core.next_step()


if not TYPE_CHECKING:
    # These add no frame, so an operation is still attributed to the caller's line.
    chunk = functools.update_wrapper(public(_core.chunk), _chunk)
    chunk.__name__ = chunk.__qualname__ = "chunk"
    me = functools.update_wrapper(public(_core.me), _me)
    me.__name__ = me.__qualname__ = "me"
    next_step = functools.update_wrapper(public(_core.next_step), _next_step)
    next_step.__name__ = next_step.__qualname__ = "next_step"


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
