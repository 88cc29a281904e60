"""Draws a topology to a file. Needs matplotlib, an optional package."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable
from typing import Any

from gc3 import errors
from gc3.support import drawing
from gc3.topologies import catalogue
from gc3.topologies.layout import JOINT, Layout, nic_number
from gc3.topologies.model import Topology

_MOST_RANKS = 1024
# Colours that colour-blind readers can distinguish (Okabe and Ito).
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6D31", "#666666")
_INK, _NIC, _JOINT = "#333333", "#E69F00", "#8A8A84"
_DASHES = (0, (3, 2))


def plot(topology: Topology, path: str, *, title: str | None = None) -> None:
    """Draws a topology to a PNG, SVG or PDF file.

    A line shows both directions of a link, or the connection of a rank to a switch. Its colour shows the class, its
    width the bandwidth. Dashed lines share resources with others. Boxes are nodes, and frames around them groups of
    nodes, such as racks.

    Raises:
        gc3.UserError: matplotlib is not installed, the file cannot be written, or there are too many ranks to draw.
    """
    drawing.check(path)
    if topology.rank_count > _MOST_RANKS:
        raise errors.error("BadArgument", f"{topology.rank_count} ranks; a drawing has at most {_MOST_RANKS}")
    from matplotlib.figure import Figure  # noqa: PLC0415  optional

    layout = Layout(topology)
    width, height = layout.inches
    figure: Any = Figure(figsize=(width + 2.6, height + 0.5), layout="constrained")
    _draw(figure, topology, layout, title or _title(topology))
    drawing.save(figure, path, dpi=150, bbox_inches="tight", pad_inches=0.15)


def _title(topology: Topology) -> str:
    preset = catalogue().get(topology.name)
    usual = {p.name: p.default for p in preset.parameters} if preset else {}
    given = ", ".join(f"{name}={value}" for name, value in topology.parameters if value != usual.get(name))
    nodes = topology.node_count
    count = f"{topology.rank_count} ranks" + (f" on {nodes} nodes" if nodes > 1 else "")
    return f"{topology.name}{f' ({given})' if given else ''}: {count}"


def _draw(figure: Any, topology: Topology, layout: Layout, title: str) -> None:
    from matplotlib.patches import FancyArrowPatch, FancyBboxPatch  # noqa: PLC0415  optional

    axes: Any = figure.add_subplot()
    axes.set_aspect("equal")
    axes.axis("off")
    style = "round,pad=0,rounding_size=0.12"
    for name, (left, bottom), (right, top) in layout.groups:
        size = right - left, top - bottom
        axes.add_patch(FancyBboxPatch((left, bottom), *size, boxstyle=style, fc="#FFFFFF", ec="#A8A8A0", zorder=-1))
        axes.annotate(name, (left + 0.1, top - 0.08), ha="left", va="top", fontsize=9, color="#777770")
    for name, (left, bottom), side in layout.boxes:
        axes.add_patch(FancyBboxPatch((left, bottom), side, side, boxstyle=style, fc="#F4F4F1", ec="#C8C8C0", zorder=0))
        place = (left + 0.08, bottom + side - 0.08)
        axes.annotate(name, place, ha="left", va="top", fontsize=8, color="#777770")
    labels = dict.fromkeys(line.label for line in layout.lines)
    colors = {label: _COLORS[i % len(_COLORS)] for i, label in enumerate(labels)}
    widths = line_widths((line.bandwidth for line in layout.lines), thickest=6 * layout.scale)
    for line in layout.lines:
        curve = FancyArrowPatch(
            line.start,
            line.end,
            arrowstyle="-",
            connectionstyle=f"arc3,rad={line.bend}",
            color=colors[line.label],
            linewidth=widths[line.bandwidth],
            linestyle=_DASHES if line.dashed else "solid",
            alpha=0.6 if line.dashed else 0.85,
            shrinkA=0,
            shrinkB=0,
            zorder=1 if line.dashed else 2,
        )
        axes.add_patch(curve)
    box = {"boxstyle": "round,pad=0.35", "facecolor": _INK, "edgecolor": "none"}
    for place, name in layout.hubs:
        axes.annotate(name, place, ha="center", va="center", fontsize=8, color="white", bbox=box, zorder=5)
    for place, count in layout.counts:
        axes.annotate(count, place, (4, -3), textcoords="offset points", ha="left", va="top", fontsize=8, color=_INK)
    for places, of, look in ((layout.joints, 45, ("D", _JOINT)), (layout.nics, 150, ("s", _NIC))):
        if places:
            xs, ys = zip(*places.values(), strict=True)
            how = {"marker": look[0], "c": look[1], "edgecolors": _INK, "linewidths": 0.8}
            axes.scatter(xs, ys, s=of * layout.scale**2, zorder=4, **how)
    for name, place in layout.nics.items():
        fits = 2.5 + 5 * layout.scale
        axes.annotate(nic_number(name), place, ha="center", va="center", fontsize=fits, color=_INK, zorder=6)
    size = 300 * layout.scale**2
    xs, ys = zip(*layout.points, strict=True)
    axes.scatter(xs, ys, s=size, c="#FFFFFF", edgecolors=_INK, linewidths=1.2, zorder=4)
    for r, point in enumerate(layout.points):
        fits = (3.5 + 5.5 * layout.scale) * min(1.0, 2 / len(str(r)))  # two digits are as wide as the circle
        axes.annotate(str(r), point, ha="center", va="center", fontsize=fits, zorder=6)
    (left, bottom), (right, top) = layout.frame
    axes.set_xlim(left, right)
    axes.set_ylim(bottom, top)
    _legend(axes, layout, colors, widths)
    axes.set_title(textwrap.fill(title, int(10 * layout.inches[0])), fontsize=12, loc="left")


def _legend(axes: Any, layout: Layout, colors: dict[str, str], widths: dict[float | None, float]) -> None:
    from matplotlib.lines import Line2D  # noqa: PLC0415  optional

    kinds = {(line.label, line.bandwidth, line.dashed) for line in layout.lines}
    order = sorted(kinds, key=lambda k: (list(colors).index(k[0]), -(k[1] or 0), k[2]))
    if not order:
        return
    handles = [
        Line2D([], [], color=colors[label], linewidth=widths[rate], linestyle=_DASHES if dashed else "solid")
        for label, rate, dashed in order
    ]
    texts = [f"{label}, {'unknown' if rate is None else f'{rate / 1e9:.4g} GB/s'}" for label, rate, _ in order]
    if layout.nics:
        handles.append(Line2D([], [], marker="s", color=_NIC, markeredgecolor=_INK, linestyle="none", markersize=9))
        texts.append("NIC")
    if layout.joints:
        handles.append(Line2D([], [], marker="D", color=_JOINT, markeredgecolor=_INK, linestyle="none", markersize=5))
        texts.append(JOINT)
    corner = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0), "frameon": False}
    legend = axes.legend(
        handles, texts, **corner, fontsize=9, title="rate in each direction", alignment="left", handlelength=2.6
    )
    legend.get_title().set_fontsize(9)


def line_widths(bandwidths: Iterable[float | None], *, thickest: float) -> dict[float | None, float]:
    """Returns a line width for each bandwidth, by its logarithm: a tenth of the largest is thin, a half still thick."""
    known = sorted({b for b in bandwidths if b is not None})
    thinnest = thickest / 5
    widths: dict[float | None, float] = {None: thinnest}
    if known:
        span = max(math.log(known[-1] / known[0]), math.log(10))
        widths |= {b: thickest - (thickest - thinnest) * math.log(known[-1] / b) / span for b in known}
    return widths
