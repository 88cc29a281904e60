"""SVG drawings that follow the light or dark appearance of the page or viewer that shows them, also as PNG."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from html import escape
from importlib import import_module
from pathlib import Path
from typing import Any

from gc3 import errors
from gc3.support import files

# Of the names of drawings that `save` writes.
FORMATS = (".svg", ".png")
_EDGE = 12  # around a drawing with a heading
_ROW = 20  # of a legend
_PIXELS = 2.0  # of a PNG, for each unit of the drawing

# By cause of a wait; Okabe and Ito's colours, which colour-blind readers can distinguish.
CAUSES = {
    "threadblock": "#0072B2",
    "receive": "#E69F00",
    "latency": "#CC79A7",
    "link": "#D55E00",
    "connection": "#8C6D31",
    "credit": "#882255",
    "semaphore": "#009E73",
    "core": "#56B4E9",
    "rendezvous": "#F0E442",
    "compute": "#332288",
    "launch": "#999999",
}

# Waits are lines of these dashes, which grey print keeps apart.
_DASHES = ("none", "none", "2 2", "8 3", "12 3 2 3", "5 3", "3 4", "1 3", "9 2 2 2", "6 6", "1 6")

_LIGHT = {
    "ink": "#22252a",
    "soft": "#62666d",
    "line": "#d8d8d2",
    "back": "#ffffff",
    "panel": "#f5f5f1",
    "mark": "#b3261e",
}
_DARK = {
    "ink": "#e8e8e4",
    "soft": "#a5a9b0",
    "line": "#43474d",
    "back": "#1a1c1f",
    "panel": "#26292d",
    "mark": "#ff8a80",
}


def _variables(colors: dict[str, str]) -> str:
    return ":root, svg { " + "".join(f"--{name}: {color}; " for name, color in colors.items()) + "}"


VARIABLES = f"\n{_variables(_LIGHT)}\n@media (prefers-color-scheme: dark) {{\n{_variables(_DARK)} }}\n"
_STYLE = (
    VARIABLES
    + """
svg { background: var(--back); }
text { font: 12px system-ui, sans-serif; fill: var(--ink); }
.soft { fill: var(--soft); } .axis, .grid { stroke: var(--line); fill: none; }
.bar { fill-opacity: .55; }
.crit { stroke: var(--mark); fill-opacity: 1; stroke-width: 2px; vector-effect: non-scaling-stroke; }
"""
    + ".wait { fill: none; opacity: .6; stroke-width: 4px; vector-effect: non-scaling-stroke; }\n"
    + "".join(
        f".c-{name} {{ fill: {color}; }} .w-{name} {{ stroke: {color}; stroke-dasharray: {dashes}; }}\n"
        for (name, color), dashes in zip(CAUSES.items(), _DASHES, strict=True)
    )
)


def document(
    inner: str,
    width: float,
    height: float,
    title: str,
    *,
    alone: bool = True,
    name: str = "",
    head: str = "",
    keys: Sequence[tuple[str, str]] = (),
) -> str:
    """Returns an SVG element; `alone`: as a file of its own, with its style.

    `head` is a line above the drawing; below it is the `legend` of `keys`.
    """
    if head:
        wide = max(width, 1.25 * text_width(head))
        shown, deep = legend(keys, wide)
        rows = f'<text x="{_EDGE}" y="20" style="font-size:15px">{escape(head)}</text>'
        rows += f'<g transform="translate({_EDGE} 33)">{shown}</g>' if keys else ""
        top = 32 + (deep + 6 if keys else 0)
        inner = f'{rows}<g transform="translate({_EDGE} {top})">{inner}</g>'
        width, height = wide + 2 * _EDGE, height + top + _EDGE
    space = ' xmlns="http://www.w3.org/2000/svg"' if alone else ""
    style = f"<style>{_STYLE}</style>" if alone else ""
    ident = f' id="{name}"' if name else ""
    return (
        f'<svg{space}{ident} viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}" role="img" '
        f'aria-label="{escape(title)}"><title>{escape(title)}</title>{style}{inner}</svg>\n'
    )


def legend(keys: Sequence[tuple[str, str]], width: float) -> tuple[str, float]:
    """Returns rows of marks with what they mean, and the height of the rows.

    A mark is the attributes of a small square or, with d=, of a path that is 24 wide, or elements as wide as that.
    """
    parts: list[str] = []
    x = y = 0.0
    for look, what in keys:
        square = not look.startswith("<") and ' d="' not in f" {look}"
        mark = f'<rect width="12" height="12" {look}/>' if square else look if look[0] == "<" else f"<path {look}/>"
        after = (18 if square else 30) + text_width(what)
        if x and x + after > width:
            x, y = 0.0, y + _ROW
        told = text(18 if square else 30, 11, what, kind="soft")
        parts.append(f'<g transform="translate({x:.1f} {y:.0f})">{mark}{told}</g>')
        x += after + 18
    return "".join(parts), y + _ROW


def style() -> str:
    """Returns the style of all drawings, for a page that contains them."""
    return _STYLE.replace("svg { background: var(--back); }", "").replace("\ntext {", "\nsvg text {")


def check(path: str) -> None:
    """Checks, before anything is computed, that a drawing can be saved under a name of FORMATS.

    Raises:
        gc3.UserError: The name ends in .png, and a package is missing.
    """
    if Path(path).suffix == ".png":
        _png_packages()


def save(drawing: str, path: str) -> None:
    """Writes the drawing of a file of its own: as SVG, or as PNG in light colours where the name ends in .png.

    Raises:
        gc3.UserError: A package that makes PNG is missing, or the file cannot be written.
    """
    if Path(path).suffix != ".png":
        files.write_text(path, drawing)
        return
    renderer, data = _png_packages()
    # The renderer knows no variables. The font comes with matplotlib: a machine without a screen may have none.
    plain = re.sub(r"var\(--(\w+)\)", lambda name: _LIGHT[name[1]], drawing.replace(VARIABLES, ""))
    made = renderer.svg_to_bytes(
        svg_string=plain,
        zoom=_PIXELS,
        background=_LIGHT["back"],
        skip_system_fonts=True,
        font_files=[str(Path(data) / "fonts" / "ttf" / "DejaVuSans.ttf")],
        font_family="DejaVu Sans",
        sans_serif_family="DejaVu Sans",
    )
    files.write_bytes(path, bytes(made))


def _png_packages() -> tuple[Any, str]:
    try:
        return import_module("resvg_py"), import_module("matplotlib").get_data_path()
    except ImportError as problem:
        message = "a drawing as PNG needs resvg and matplotlib: run `pip install resvg-py matplotlib`, or ask for SVG"
        raise errors.error("MissingPackage", message) from problem


def text(x: float, y: float, what: str, *, kind: str = "", anchor: str = "") -> str:
    """Returns a text element."""
    more = (f' class="{kind}"' if kind else "") + (f' text-anchor="{anchor}"' if anchor else "")
    return f'<text x="{x:.1f}" y="{y:.1f}"{more}>{escape(what)}</text>'


def text_width(what: str) -> float:
    """Returns about how wide a text of 12 px is.

    >>> text_width("ill") < text_width("mmm")
    True
    """
    return sum(4.2 if c in " .,:;'()|ijlt-" else 10.2 if c in "mwMW%" else 7.5 for c in what)


def round_ticks(span: float, most: int = 8) -> list[float]:
    """Returns round numbers above 0 and below `span`, equally far apart.

    >>> round_ticks(211.0)
    [50.0, 100.0, 150.0, 200.0]
    """
    unit = 10.0 ** math.floor(math.log10(span))
    step = next(part * unit for part in (0.1, 0.2, 0.5, 1.0, 2.0) if span / (part * unit) <= most)
    return [step * k for k in range(1, math.ceil(span / step))]


def time_text(seconds: float) -> str:
    """Returns a time with its unit.

    >>> time_text(1.5e-6), time_text(2.5e-3)
    ('1.5 us', '2.5 ms')
    """
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.4g} {unit}"
    return f"{seconds * 1e6:.4g} us"
