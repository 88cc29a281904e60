"""Sizes as people write and read them: 64MiB, 1GB, 1000003B, 512K."""

from __future__ import annotations

import re
from fractions import Fraction

# As in nccl-tests, K, M and G alone are powers of 1024.
_TOO_LARGE = 2**62
_UNITS = {"": 1, "b": 1}
for _power, _letter in enumerate("kmgt", start=1):
    _UNITS[_letter] = _UNITS[f"{_letter}ib"] = 1024**_power
    _UNITS[f"{_letter}b"] = 1000**_power


def parse_size(text: str) -> int:
    """Returns the number of bytes that `text` gives.

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
    """Returns `size` in a short form that is always exact.

    >>> [format_size(n) for n in (67108864, 1000003, 1536)]
    ['64 MiB', '1000003 B', '1536 B']
    """
    for power, unit in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        if size and size % 1024**power == 0:
            return f"{size // 1024**power} {unit}"
    return f"{size} B"
