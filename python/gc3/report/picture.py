"""A sweep as a picture: speed-up over the baseline, time and bus bandwidth by size, drawn with matplotlib."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gc3.report.style import GRID, INK, Sweep, short_size, size_ticks
from gc3.support import drawing

if TYPE_CHECKING:
    from gc3.sim.sweep import Cell, Row

_DOTS_PER_INCH = 150
_PANEL_INCHES = (3.6, 2.9)  # three stay readable in the width of a page
_LINE_INCHES = 0.22  # of the legend
_NOTE_INCHES = 0.16
_TICK_INCHES = 0.45  # what labels of ticks take
_HEAD_INCHES = 0.7
_EDGE = 0.12
_LEGEND_CHARS = 90
_NOTE_CHARS = 64  # in the width of a panel
_MARKS = "os^Dv<>P"  # besides colours, for grey print
_FEW_DECADES = 1e2
_MANY = 16  # of more sizes, not every point is marked


def draw(sweep: Sweep, path: str) -> None:
    """Draws a sweep to a PNG, SVG or PDF file.

    Raises:
        gc3.UserError: matplotlib is not installed, the file has another suffix or cannot be written.
    """
    drawing.check(path)
    from matplotlib.figure import Figure  # noqa: PLC0415  optional

    drawing.save(_figure(Figure, sweep), path, dpi=_DOTS_PER_INCH)


def inline(sweep: Sweep) -> str:
    """Returns the drawing as an element of a page.

    Raises:
        gc3.UserError: matplotlib is not installed.
    """
    drawing.check("x.svg")
    from matplotlib.figure import Figure  # noqa: PLC0415  optional

    whole = drawing.made(_figure(Figure, sweep), "svg", dpi=_DOTS_PER_INCH).decode()
    return whole[whole.index("<svg") :]


def _figure(make: Any, sweep: Sweep) -> Any:
    panels: list[tuple[str, Callable[[Row, Cell], float | None], bool]] = [
        ("time (us)", lambda _, cell: 1e6 * cell.time_s, True),
        ("busbw (GB/s)", lambda _, cell: cell.busbw, False),
    ]
    if sweep.baselines:
        panels.insert(0, (f"speed-up over {sweep.baselines[0]}", lambda row, cell: row.speedup(cell), False))
    labels = [textwrap.shorten(p, _LEGEND_CHARS, placeholder="...") for p in sweep.programs]
    columns = 1 if max(map(len, labels)) > _LEGEND_CHARS * 2 // 3 else min(len(panels), len(labels))
    banded = any(cell.error for row in sweep.rows for cell in row.cells)
    told = f"{sweep.note} Bands: these errors of predicted times." if banded else sweep.note
    note = textwrap.wrap(told, _NOTE_CHARS * len(panels))
    # From the bottom: the note, the legend, the sizes below the axes.
    note_top = _EDGE + _NOTE_INCHES * len(note)
    bottom = note_top + _LINE_INCHES * -(-len(labels) // columns) + _TICK_INCHES
    width, height = _PANEL_INCHES[0] * len(panels), bottom + _PANEL_INCHES[1] + _HEAD_INCHES
    figure = make(figsize=(width, height))
    left, right = _TICK_INCHES + _EDGE, _EDGE * 2
    gap = _TICK_INCHES + 2 * _EDGE
    each = (width - left - right - gap * (len(panels) - 1)) / len(panels)
    figure.subplots_adjust(
        left=left / width,
        right=1 - right / width,
        bottom=bottom / height,
        top=1 - _HEAD_INCHES / height,
        wspace=gap / each,
    )
    start = _EDGE / width
    figure.text(start, 1 - _EDGE / height, sweep.title, va="top", fontsize=12, color=INK)
    axes: list[Any] = list(figure.subplots(1, len(panels), squeeze=False)[0])
    for place, (name, value, logarithmic) in zip(axes, panels, strict=True):
        _panel(place, sweep, name, value, logarithmic=logarithmic)
    _bound(axes[-1], sweep)
    handles, _ = axes[-1].get_legend_handles_labels()
    anchor = {"loc": "lower left", "bbox_to_anchor": (start, note_top / height), "borderaxespad": 0, "borderpad": 0.3}
    figure.legend(handles, labels, ncols=columns, frameon=False, fontsize=9, **anchor)
    figure.text(start, _EDGE / height, "\n".join(note), fontsize=7.5, color="#777770", va="bottom")
    return figure


def _panel(
    axes: Any, sweep: Sweep, name: str, value: Callable[[Row, Cell], float | None], *, logarithmic: bool
) -> None:
    sizes = [max(row.size, 1) for row in sweep.rows]  # a logarithm has no 0
    drawn: list[float] = []
    for number, program in enumerate(sweep.programs):
        mark = {"marker": _MARKS[number % len(_MARKS)], "markevery": -(-len(set(sizes)) // _MANY), "markersize": 3.5}
        points = [
            (max(row.size, 1), y, cell.error)
            for row, cell in sweep.cells(program)
            if (y := value(row, cell)) is not None
        ]
        base = program in sweep.baselines
        style = {"linestyle": "--" if base else "-", "linewidth": 1.6 if base else 1.9, "zorder": 2 if base else 3}
        xs, ys = [x for x, *_ in points], [y for _, y, _ in points]
        drawn += ys
        axes.plot(xs, ys, label=program, color=sweep.color(program), **mark, **style)
        if any(error for *_, error in points):
            lower, upper = ([y * math.exp(sign * error) for _, y, error in points] for sign in (-1, 1))
            axes.fill_between(xs, lower, upper, color=sweep.color(program), alpha=0.13, linewidth=0)
    axes.set_xscale("log", base=2)
    if logarithmic and max(drawn, default=0.0) > 0:  # of nothing, a call on an ideal machine takes no time
        axes.set_yscale("log")
        if max(drawn) < _FEW_DECADES * min(y for y in drawn if y > 0):  # else two labels would be all
            axes.yaxis.get_major_locator().set_params(subs=(1.0, 2.0, 5.0))
        axes.yaxis.set_major_formatter("{x:g}")
    else:
        axes.set_ylim(bottom=0)
        low, high = axes.get_ylim()
        axes.set_ylim(low, high + 0.04 * (high - low))
    ticks = size_ticks(sizes, most=6)
    axes.set_xticks(ticks, [short_size(x) for x in ticks], fontsize=8)
    axes.set_xticks([], minor=True)
    if len(set(sizes)) > 1:
        least, most = min(sizes), max(sizes)
        axes.set_xlim(least / (most / least) ** 0.02, most * (most / least) ** 0.02)
    axes.tick_params(axis="y", labelsize=8)
    axes.set_title(name, fontsize=10, loc="left", color=INK)
    axes.grid(visible=True, which="major", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("bottom", "left"):
        axes.spines[side].set_color("#AAAAA4")


def _bound(axes: Any, sweep: Sweep) -> None:
    """Marks the bus bandwidth that no program drawn can exceed, as plots of nccl-tests mark that of the links."""
    most = max((c.busbw * c.time_s / c.bound_s for row in sweep.rows for c in row.cells if c.bound_s), default=0.0)
    if not most:
        return
    axes.set_ylim(top=max(axes.get_ylim()[1], 1.12 * most))
    axes.axhline(most, color=INK, linewidth=1, linestyle=":", zorder=1)
    place = {"xy": (0.02, most), "xycoords": axes.get_yaxis_transform(), "textcoords": "offset points"}
    axes.annotate(f"bound {most:.4g}", xytext=(0, 3), **place, fontsize=8, color=INK)
