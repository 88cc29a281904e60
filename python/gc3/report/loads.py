"""A machine with the load that a program puts on every link."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from gc3.report import svg
from gc3.topologies.layout import JOINT, Layout, nic_number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gc3.topologies.model import Topology

MOST_RANKS = 256
_UNIT = 170
_MOST_TOLD = 6  # resources of one line
# By the load relative to that of the busiest link.
_SCALE = (
    (0.0, "#7d8590"),
    (0.01, "#56B4E9"),
    (0.25, "#009E73"),
    (0.5, "#E69F00"),
    (0.75, "#D55E00"),
    (0.95, "#b3261e"),
)


def color(share: float) -> str:
    """Returns the colour of a link with this share of the load of the busiest one."""
    return [c for least, c in _SCALE if share >= least][-1]


def draw(
    topology: Topology, use: Mapping[str, tuple[float, int]], time_s: float, *, alone: bool = True, head: str = ""
) -> str:
    """Returns the drawing, under `head` in a file of its own; the machine may have at most `MOST_RANKS` ranks."""
    layout = Layout(topology)
    (left, bottom), (right, top) = layout.frame
    unit = min(_UNIT, 1600 / max(right - left, top - bottom))
    width, height = (right - left) * unit, (top - bottom) * unit

    def at(point: tuple[float, float]) -> tuple[float, float]:
        return (point[0] - left) * unit, (top - point[1]) * unit

    busiest, (most, carried) = max(use.items(), key=lambda item: item[1][0], default=("", (0.0, 0)))
    parts: list[str] = []
    boxes = [(name, (x, y), (x + side, y + side), "panel") for name, (x, y), side in layout.boxes]
    for name, low, high, fill in [*((*group, "back") for group in layout.groups), *boxes]:
        (px, bottom), (end, py) = at(low), at(high)
        parts.append(
            f'<rect x="{px:.1f}" y="{py:.1f}" width="{end - px:.1f}" height="{bottom - py:.1f}" rx="10" '
            f'style="fill:var(--{fill});stroke:var(--line)"/>{svg.text(px + 8, py + 16, name, kind="soft")}'
        )
    for line in layout.lines:
        (x1, y1), (x2, y2) = at(line.start), at(line.end)
        found = [(name, *use.get(name, (0.0, 0))) for name in line.resources]
        share = max((busy / most for _, busy, _ in found), default=0.0) if most else 0.0
        busy = [f"{n}: {size / 1e6:.4g} MB, busy {busy / (time_s or 1):.0%}" for n, busy, size in found if size]
        told = "; ".join(busy[:_MOST_TOLD]) + (f" and {len(busy) - _MOST_TOLD} more" if busy[_MOST_TOLD:] else "")
        # To the side of matplotlib's arc3, whose y grows upwards.
        mx, my = (x1 + x2) / 2 - line.bend * (y2 - y1), (y1 + y2) / 2 + line.bend * (x2 - x1)
        dash = ' stroke-dasharray="6 4"' if line.dashed else ""
        parts.append(
            f'<path d="M{x1:.1f} {y1:.1f}Q{mx:.1f} {my:.1f} {x2:.1f} {y2:.1f}" fill="none" stroke="{color(share)}" '
            f'stroke-width="{1.5 + 4 * min(share, 1.0):.1f}"{dash}>'
            f"<title>{escape(line.label)}: {escape(told or 'not used')}</title></path>"
        )
    parts += [svg.text(at(place)[0] + 5, at(place)[1] + 12, count) for place, count in layout.counts]
    radius = max(5.0, min(15.0, 15 * layout.scale))
    for hub, name in layout.hubs:
        x, y = at(hub)
        wide = 8 * len(name) + 12
        parts.append(
            f'<rect x="{x - wide / 2:.1f}" y="{y - 10:.1f}" width="{wide}" height="20" rx="6" style="fill:var(--ink)"/>'
            f'<text x="{x:.1f}" y="{y + 4:.1f}" text-anchor="middle" style="fill:var(--back)">{escape(name)}</text>'
        )
    for x, y in map(at, dict.fromkeys(layout.joints.values())):
        parts.append(f'<path d="M{x - 5:.1f} {y:.1f}l5-5 5 5-5 5z" style="fill:var(--soft);stroke:var(--ink)"/>')
    for name, place in layout.nics.items():
        x, y = at(place)
        look = f'x="{x - 8:.1f}" y="{y - 8:.1f}" width="16" height="16" style="fill:var(--panel);stroke:var(--ink)"'
        parts.append(f"<rect {look}><title>{escape(name)}</title></rect>")
        parts.append(
            f'<text x="{x:.1f}" y="{y + 3.5:.1f}" text-anchor="middle" style="font-size:10px">{nic_number(name)}</text>'
        )
    for rank, point in enumerate(layout.points):
        x, y = at(point)
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" style="fill:var(--back);stroke:var(--ink)"/>')
        parts.append(
            f'<text x="{x:.1f}" y="{y + 4:.1f}" text-anchor="middle" '
            f'style="font-size:{max(6.0, 0.8 * radius):.1f}px">{rank}</text>'
        )
    keys = [
        (f'd="M0 7h24" stroke="{name}" stroke-width="{1.5 + 4 * least:.1f}"', f"from {least:.0%}" if k else "unused")
        for k, (least, name) in enumerate(_SCALE)
    ]
    if any(line.dashed for line in layout.lines):
        keys.append(('d="M0 7h24" stroke="var(--soft)" stroke-width="1.5" stroke-dasharray="6 4"', "shared"))
    keys += [('style="fill:var(--panel);stroke:var(--ink)"', "NIC")] if layout.nics else []
    keys += [('d="M7 6l5-5 5 5-5 5z" style="fill:var(--soft);stroke:var(--ink)"', JOINT)] if layout.joints else []
    width = max(width, 590)
    shown, deep = svg.legend(keys, width - 16)
    parts.append(f'<g transform="translate(8 {height + 4:.1f})">{shown}</g>')
    if most:
        told = f"{busiest}: {carried / 1e6:.4g} MB, busy {most / (time_s or 1):.1%} of the time"
        parts.append(svg.text(8, height + deep + 16, f"of the load of the busiest link, {told}", kind="soft"))
    title = f"Load of the links of {topology.name}"
    return svg.document("".join(parts), width, height + deep + 26, title, alone=alone, head=head)
