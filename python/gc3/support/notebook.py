"""How notebooks show objects: small HTML tables that take the notebook's own colours."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_CELL = "text-align:left;padding:.1em 1em .1em 0;vertical-align:top"
_BAR = "display:inline-block;height:.8em;background:#0072B2"


def card(title: str, rows: Iterable[tuple[str, str]], parts: Mapping[str, float] | None = None) -> str:
    """Returns a title, rows of a name and a text, and bars for parts of a whole.

    >>> card("a < b", [("ranks", "8")]).count("&lt;")
    1
    """
    body = "".join(
        f'<tr><th scope="row" style="{_CELL}">{escape(name)}</th><td style="{_CELL}">{escape(text)}</td></tr>'
        for name, text in rows
    )
    total = sum((parts or {}).values())
    for name, part in (parts or {}).items() if total > 0 else ():
        share = part / total
        body += (
            f'<tr><th scope="row" style="{_CELL}">{escape(name)}</th><td style="{_CELL}">'
            f'<span style="{_BAR};width:{8 * share:.2f}em"></span> {share:.1%}</td></tr>'
        )
    return f'<div class="gc3"><b>{escape(title)}</b><table style="{_CELL}">{body}</table></div>'
