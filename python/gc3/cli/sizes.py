"""Sizes as people write them: 64MiB, 1GB, 1000003B, 512K."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import TYPE_CHECKING

import click

from gc3 import collectives, datatypes

if TYPE_CHECKING:
    from gc3 import _core

# As nccl-tests reads them, K, M and G alone are powers of 1024.
_TOO_LARGE = 2**62
_UNITS = {"": 1, "b": 1}
for _power, _letter in enumerate("kmgt", start=1):
    _UNITS[_letter] = _UNITS[f"{_letter}ib"] = 1024**_power
    _UNITS[f"{_letter}b"] = 1000**_power


def parse_size(text: str) -> int:
    """Returns the bytes that `text` says.

    >>> [parse_size(s) for s in ("64MiB", "1GB", "1000003B", "1M", "1.5k", "7")]
    [67108864, 1000000000, 1000003, 1048576, 1536, 7]
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    if match is None or match[2].lower() not in _UNITS:
        raise ValueError(f"'{text}' is not a size; write 64MiB, 1GB, 512K or 1000003B")
    size = Fraction(match[1]) * _UNITS[match[2].lower()]
    if size.denominator != 1:
        raise ValueError(f"'{text}' is not a whole number of bytes")
    if size >= _TOO_LARGE:
        raise ValueError(f"'{text}' is more than any memory can hold")
    return int(size)


def format_size(size: int) -> str:
    """Returns `size` the short way, always exactly.

    >>> [format_size(n) for n in (67108864, 1000003, 1536)]
    ['64 MiB', '1000003 B', '1536 B']
    """
    for power, unit in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        if size and size % 1024**power == 0:
            return f"{size // 1024**power} {unit}"
    return f"{size} B"


if TYPE_CHECKING:
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
