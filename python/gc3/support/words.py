"""Words for people, and from them."""

from __future__ import annotations

import re

_NAMED = re.compile(r"(.+?):\s*([^\W\d]\w*\s*=.*)", re.DOTALL)


def counted(number: int, what: str, several: str = "") -> str:
    """Returns a count with its noun.

    >>> counted(1, "rank"), counted(2, "rank"), counted(2, "class", "classes")
    ('1 rank', '2 ranks', '2 classes')
    """
    return f"{number} {what}" if number == 1 else f"{number} {several or what + 's'}"


def split_values(text: str) -> tuple[str, dict[str, str]]:
    """Returns a name and what follows it, as programs, machines and engines are written: NAME:key=value,...

    Raises:
        ValueError: With the part that is not key=value.

    >>> split_values("ring_allreduce:channels=4,protocol=LL")
    ('ring_allreduce', {'channels': '4', 'protocol': 'LL'})
    >>> split_values("mine.py:ring")
    ('mine.py:ring', {})
    """
    found = _NAMED.fullmatch(text)
    if found is None:
        return text, {}
    values: dict[str, str] = {}
    for part in found[2].split(","):
        key, _, value = (piece.strip() for piece in part.partition("="))
        if not key.isidentifier() or not value or key in values:
            raise ValueError(part)
        values[key] = value
    return found[1], values
