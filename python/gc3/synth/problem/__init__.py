"""What is asked for: a network, the demand of a collective on it, their symmetries, and a time limit.

A search that has no result yet regularly checks whether the deadline has passed. What takes a number of seconds, a
deadline or `hurry` raises `TimeUp` then, unless it says that it returns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

FOUND, IMPOSSIBLE, OPEN = "found", "impossible", "open"
ENDLESS = 1e9  # seconds
FIRST_SLICE = 2.0  # seconds for a formula before a smaller group is tried


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
