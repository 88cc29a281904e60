"""Buffers for timed calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from gc3.comm import arrays

if TYPE_CHECKING:
    from gc3 import _core
    from gc3.datatypes import Array


def buffers(
    model: _core.Collective,
    rank: int,
    count: int,
    dtype: Any,
    *,
    in_place: bool,
    make: Callable[[int, Any], Array] | None = None,
) -> tuple[Array, Array]:
    """Returns input and output of a rank for `count` elements per block; in place, one is a part of the other.

    `make` makes an array, as `Communicator.empty` does in registered memory; None: in ordinary memory.

    Every page is written to, because all pages that were never written are one page of zeros, which a cache holds.
    """
    allocate: Any = make or np.empty
    given: Array = allocate(model.input_blocks(rank) * count, dtype)
    result: Array = allocate(model.output_blocks(rank) * count, dtype)
    for each in (given, result):
        each.fill(1)
    if not (in_place and given.size and result.size):
        return given, result
    if given.size == result.size:
        return given, given
    if given.size > result.size:
        return given, given[rank * count : rank * count + result.size]
    return result[rank * count : rank * count + given.size], result


def checked(given: tuple[Any, Any]) -> tuple[Array | None, Array | None]:
    """Returns the input and the output that the caller gives."""
    source = None if given[0] is None else arrays.source(given[0])
    target = None if given[1] is None else arrays.target(given[1])
    arrays.check_alike(source, target)
    return arrays.on_host(source), arrays.on_host(target)
