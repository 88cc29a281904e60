"""What the checks of `make lint` do with their findings."""

from __future__ import annotations

from collections.abc import Iterable


def report(found: Iterable[str]) -> int:
    """Prints one line for each violation; returns the exit status."""
    lines = list(found)
    for line in lines:
        print(line)
    return 1 if lines else 0
