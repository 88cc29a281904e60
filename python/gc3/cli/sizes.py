"""Sizes on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gc3 import collectives, datatypes
from gc3.support.sizes import format_size, parse_size

__all__ = ["Size", "fit", "format_size", "parse_size"]

if TYPE_CHECKING:
    from gc3 import _core

    _SizeType = click.ParamType[int]
else:  # older versions of click have no type argument
    _SizeType = click.ParamType


class Size(_SizeType):
    """A size on the command line."""

    name = "size"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Returns the bytes."""
        if isinstance(value, int):
            return value
        try:
            return parse_size(value)
        except ValueError as problem:
            self.fail(str(problem), param, ctx)


def fit(model: _core.Collective, size: int, dtype: str) -> tuple[int, str | None]:
    """Returns the elements per block for S = `size`, and a remark if S had to be rounded down.

    As in nccl-tests, S is rounded down to whole elements in every block.
    """
    itemsize = datatypes.dtype(dtype).itemsize
    count = collectives.count_for(model, size, itemsize)
    actual = collectives.size_for(model, count, itemsize)
    if actual == size:
        return count, None
    blocks = collectives.size_blocks(model)
    parts = f"{blocks} blocks of {count}" if blocks > 1 else f"{count}"
    return count, f"{format_size(size)} is rounded down to {format_size(actual)}: {parts} {dtype} elements"
