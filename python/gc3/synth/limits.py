"""When to give up: what searches, and has no result that is worth keeping, asks now and then whether time is up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias


class TimeUp(Exception):  # noqa: N818 - no error: a search ends without a result
    """The deadline of a session has passed."""


# Raises TimeUp where the deadline has passed.
Hurry: TypeAlias = "Callable[[], None]"


def at_leisure() -> None:
    """Has all the time there is."""


def slices(seconds: float) -> Iterator[float]:
    """Yields times to try for, longer and longer, without end."""
    while True:
        yield seconds
        seconds *= 4
