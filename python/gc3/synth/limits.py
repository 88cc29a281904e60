"""Time limits: a search that has no result yet regularly checks whether the deadline has passed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

ENDLESS = 1e9  # seconds


class TimeUp(Exception):  # noqa: N818 - no error: a search ends without a result
    """The deadline of a session has passed."""


# Raises TimeUp if the deadline has passed.
Hurry: TypeAlias = "Callable[[], None]"


def at_leisure() -> None:
    """Has no time limit."""


def slices(seconds: float) -> Iterator[float]:
    """Yields increasing time limits for attempts, without end."""
    while True:
        yield seconds
        seconds *= 4
