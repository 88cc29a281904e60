"""Words for people."""

from __future__ import annotations


def counted(number: int, what: str) -> str:
    """Returns a count with its noun.

    >>> counted(1, "rank"), counted(2, "rank")
    ('1 rank', '2 ranks')
    """
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
