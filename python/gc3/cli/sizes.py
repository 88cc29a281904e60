"""Sizes on the command line."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from gc3 import collectives, datatypes
from gc3.cli.parsed import Parsed
from gc3.runtime import measure
from gc3.runtime.scratch import ScratchLimit, parse_limit
from gc3.support.sizes import format_size, parse_size

__all__ = ["Scratch", "Size", "fit", "format_size", "in_range", "parse_size", "range_options"]

if TYPE_CHECKING:
    from gc3 import _core


class Size(Parsed):
    """A size on the command line."""

    name = "size"

    def __init__(self, least: int = 0) -> None:
        """Takes the smallest size allowed, in bytes."""
        self._least = least

    def parse(self, text: str) -> int:
        """Returns the bytes."""
        size = parse_size(text)
        if size < self._least:
            raise ValueError(f"'{text}' is below {self._least} B")
        return size


class Scratch(Parsed):
    """A limit on scratch memory on the command line."""

    name = "limit"

    def parse(self, text: str) -> ScratchLimit:
        """Returns the limit."""
        return parse_limit(text)


def range_options(largest: str = "1GiB") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Returns what gives a command the arguments of `in_range`."""

    def wrap(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in (
            click.option(
                "-f",
                "--factor",
                type=click.IntRange(min=2),
                default=4,
                show_default=True,
                help="Multiply the size by this from row to row.",
            ),
            click.option("-e", "--max-size", type=Size(), default=largest, show_default=True, help="Largest size."),
            click.option("-b", "--min-size", type=Size(), default="1KiB", show_default=True, help="Smallest size."),
        ):
            command = option(command)
        return command

    return wrap


def in_range(min_size: int, max_size: int, factor: int, *, most: int | None = None) -> list[int]:
    """Returns the sizes of the rows of a table, of which there may be at most so many."""
    if max_size < min_size:
        raise click.UsageError(f"the largest size, {max_size} B, is below the smallest, {min_size} B")
    growing = measure.sizes(min_size, max_size, factor=factor)
    wanted = list(growing if most is None else islice(growing, most + 1))
    if most is not None and len(wanted) > most:
        raise click.UsageError(f"that makes more than {most} sizes: raise -f/--factor")
    return wanted


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
