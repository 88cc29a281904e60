"""Makes matplotlib's SVG several times smaller: the same picture, and the same searchable text.

matplotlib repeats the whole style at every tick, puts every line in its own groups, and writes coordinates to a
millionth of a point. Here each style becomes a class, groups without effect are removed, and coordinates are rounded to
a hundredth of a point.
"""

from __future__ import annotations

import re

_PIECE = re.compile(r"<[^>]+>|[^<]+")  # matplotlib writes &gt; in attributes
_ATTRIBUTE = re.compile(r'\s([\w:-]+)="([^"]*)"')
_LONG_NUMBER = re.compile(r"-?\d+\.\d{3,}")
_NO_TURN = re.compile(r"\s*rotate\(-?0 [^)]*\)")
_PLACES = frozenset({"d", "x", "y", "width", "height", "transform"})
_SHEET = "*{stroke-linejoin: round; stroke-linecap: butt}"


def compact(text: str) -> str:
    """Returns the picture in fewer bytes; leaves elements that are not matplotlib's unchanged.

    >>> compact(f'<style>{_SHEET}</style> <g id="a"> <path d="M 1.23456 2 L 3 4 " style="fill: none"/> </g>')
    '<style>*{stroke-linejoin: round; stroke-linecap: butt}.s0{fill: none}</style><path d="M1.23 2L3 4" class="s0"/>'
    """
    if _SHEET not in text:
        return text
    referred = set(re.findall(r"#([\w-]+)", text))
    classes: dict[str, str] = {}
    groups: list[bool] = []  # the open groups: whether they are kept
    inside_text = False
    pieces: list[str] = []
    for piece in _PIECE.findall(text):
        if not piece.startswith("<"):
            pieces.append(piece if inside_text else piece.strip())
            continue
        if piece.startswith("<text") or piece == "</text>":
            inside_text = piece != "</text>"
        tag = _shorter(piece, referred, classes) if piece[1].isalpha() else piece
        if piece.startswith("<g ") or piece == "<g>":
            groups.append(tag != "<g>")
        if tag == "<g>" or (piece == "</g>" and not groups.pop()) or piece.startswith("<!--"):
            continue
        pieces.append(tag)
    rules = "".join(f".{name}{{{style}}}" for style, name in classes.items())
    return "".join(pieces).replace(_SHEET, _SHEET + rules, 1)


def _shorter(tag: str, referred: set[str], classes: dict[str, str]) -> str:
    """A tag without unused ids, with a class for its style, and with rounded coordinates."""

    def attribute(match: re.Match[str]) -> str:
        name, value = match[1], match[2]
        if name == "id" and value not in referred:
            return ""
        if name == "style":
            return f' class="{classes.setdefault(value, f"s{len(classes)}")}"'
        if name in _PLACES:
            value = _LONG_NUMBER.sub(lambda number: f"{float(number[0]):.2f}".rstrip("0").rstrip("."), value)
        if name == "d":
            value = re.sub(r"\s*([A-Za-z])\s*", r"\1", " ".join(value.split()))
        if name == "transform":
            value = _NO_TURN.sub("", value)
        return f' {name}="{value}"' if value else ""

    return _ATTRIBUTE.sub(attribute, tag)
