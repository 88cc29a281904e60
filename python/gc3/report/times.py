"""A chart of times by size, both logarithmic."""

from __future__ import annotations

import math
from html import escape
from types import MappingProxyType
from typing import TYPE_CHECKING

from gc3.report import svg
from gc3.report.style import COLORS, short_size, size_ticks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_WIDTH, _HEIGHT = 720, 340
_LEFT, _RIGHT, _BOTTOM, _TOP = 66, 26, 34, 12
# Besides colours, for grey print: as the marks of gc3.report.picture.
_MARKS = (
    "m-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0",
    "m-3-3h6v6h-6z",
    "m0-5l4 8h-8z",
    "m0-5l5 5-5 5-5-5z",
    "m0 5l4-8h-8z",
    "m-5 0l8-4v8z",
    "m5 0l-8-4v8z",
    "m-1-4h2v3h3v2h-3v3h-2v-3h-3v-2h3z",
)


def draw(
    series: Mapping[str, Sequence[tuple[int, float]]],
    *,
    alone: bool = True,
    head: str = "",
    errors: Mapping[str, Mapping[int, float]] = MappingProxyType({}),
    baselines: Sequence[str] = (),
) -> str:
    """Returns the chart of some series of (size in bytes, seconds), under `head` in a file of its own.

    `errors` has the |log(predicted / measured)| of series by size, which are bands; `baselines` are grey.
    """
    points = [(s, t) for line in series.values() for s, t in line if t > 0]
    if not points:
        return svg.document(svg.text(8, 20, "no times"), _WIDTH, 40, "Times by size", alone=alone)
    sizes, times = [max(s, 1) for s, _ in points], [t for _, t in points]
    low, high = math.log2(min(sizes)), math.log2(max(sizes))
    first, last = math.floor(math.log10(min(times))), math.ceil(math.log10(max(times)))
    last = max(last, first + 1)

    def x(size: int) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * (
            (math.log2(max(size, 1)) - low) / (high - low) if high > low else 0.5
        )

    def y(seconds: float) -> float:
        return _HEIGHT - _BOTTOM - (_HEIGHT - _BOTTOM - _TOP) * (math.log10(seconds) - first) / (last - first)

    parts: list[str] = []
    for decade in range(first, last + 1):
        at = y(10.0**decade)
        parts.append(f'<path class="grid" d="M{_LEFT} {at:.1f}H{_WIDTH - _RIGHT}"/>')
        parts.append(svg.text(_LEFT - 6, at + 4, svg.time_text(10.0**decade), kind="soft", anchor="end"))
    for size in size_ticks(sizes, most=7):
        parts.append(f'<path class="grid" d="M{x(size):.1f} {_TOP}V{_HEIGHT - _BOTTOM}"/>')
        parts.append(svg.text(x(size), _HEIGHT - 14, short_size(size), kind="soft", anchor="middle"))
    keys: list[tuple[str, str]] = []
    for number, (name, line) in enumerate(series.items()):
        shown = [(x(s), y(t)) for s, t in line if t > 0]
        ink = "var(--soft)" if name in baselines else COLORS[number % len(COLORS)]
        dash = ' stroke-dasharray="6 4"' if name in baselines else ""
        mark = _MARKS[number % len(_MARKS)]
        way = " ".join(f"{px:.1f},{py:.1f}" for px, py in shown)
        wide = errors.get(name, {})
        edges = [[(x(s), y(t * math.exp(sign * wide.get(s, 0.0)))) for s, t in line if t > 0] for sign in (1, -1)]
        if wide:
            band = " ".join(
                f"{px:.1f},{max(min(py, _HEIGHT - _BOTTOM), _TOP):.1f}" for px, py in edges[0] + edges[1][::-1]
            )
            parts.append(f'<polygon class="band" points="{band}" fill="{ink}" fill-opacity="0.13"/>')
        parts.append(f'<polyline points="{way}" fill="none" stroke="{ink}" stroke-width="2"{dash}/>')
        for (s, t), (px, py) in zip(((s, t) for s, t in line if t > 0), shown, strict=True):
            parts.append(
                f'<path d="M{px:.1f} {py:.1f}{mark}" fill="{ink}">'
                f"<title>{escape(name)}, {short_size(s)}: {svg.time_text(t)}</title></path>"
            )
        look = f'<path d="M0 7h24" stroke="{ink}" stroke-width="2"{dash}/><path d="M12 7{mark}" fill="{ink}"/>'
        keys.append((look, name))
    shown, deep = svg.legend(keys, _WIDTH - _LEFT)
    parts.append(f'<g transform="translate({_LEFT} {_HEIGHT})">{shown}</g>')
    return svg.document("".join(parts), _WIDTH, _HEIGHT + deep, "Times by size", alone=alone, head=head)
