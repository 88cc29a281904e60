"""SVG drawings that follow the light or dark appearance of the page or viewer that shows them."""

from __future__ import annotations

from html import escape

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
    "launch": "#999999",
}

VARIABLES = """
:root, svg { --ink: #22252a; --soft: #62666d; --line: #d8d8d2; --back: #ffffff; --panel: #f5f5f1; --mark: #b3261e; }
@media (prefers-color-scheme: dark) {
:root, svg { --ink: #e8e8e4; --soft: #a5a9b0; --line: #43474d; --back: #1a1c1f; --panel: #26292d; --mark: #ff8a80; } }
"""
_STYLE = (
    VARIABLES
    + """
svg { background: var(--back); }
text { font: 12px system-ui, sans-serif; fill: var(--ink); }
.soft { fill: var(--soft); } .axis, .grid { stroke: var(--line); fill: none; }
.crit { stroke: var(--mark); stroke-width: 2px; vector-effect: non-scaling-stroke; }
"""
    + "".join(f".c-{name} {{ fill: {color}; }}\n" for name, color in CAUSES.items())
)


def document(inner: str, width: float, height: float, title: str, *, alone: bool = True, name: str = "") -> str:
    """Returns an SVG element; `alone`: as a file of its own, with its style."""
    space = ' xmlns="http://www.w3.org/2000/svg"' if alone else ""
    style = f"<style>{_STYLE}</style>" if alone else ""
    ident = f' id="{name}"' if name else ""
    return (
        f'<svg{space}{ident} viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}" role="img" '
        f'aria-label="{escape(title)}"><title>{escape(title)}</title>{style}{inner}</svg>\n'
    )


def style() -> str:
    """Returns the style of all drawings, for a page that contains them."""
    return _STYLE.replace("svg { background: var(--back); }", "").replace("\ntext {", "\nsvg text {")


def text(x: float, y: float, what: str, *, kind: str = "", anchor: str = "") -> str:
    """Returns a text element."""
    more = (f' class="{kind}"' if kind else "") + (f' text-anchor="{anchor}"' if anchor else "")
    return f'<text x="{x:.1f}" y="{y:.1f}"{more}>{escape(what)}</text>'


def time_text(seconds: float) -> str:
    """Returns a time with its unit.

    >>> time_text(1.5e-6), time_text(2.5e-3)
    ('1.5 us', '2.5 ms')
    """
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.4g} {unit}"
    return f"{seconds * 1e6:.4g} us"
