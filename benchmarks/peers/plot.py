"""The comparison as a drawing: time by size for each collective, and how many times faster gc3 is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gc3.support import drawing
from peers.points import COLLECTIVES, OURS, PYTHON, Point

# Colours that colour-blind readers can distinguish (Okabe and Ito).
_COLORS = {
    OURS: "#D55E00",
    PYTHON: "#E69F00",
    "openmpi": "#0072B2",
    "mpich": "#009E73",
    "gloo": "#CC79A7",
    "mpi4py": "#56B4E9",
}
_BY_COLLECTIVE = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00")
_INK = "#333333"


def plot(points: Sequence[Point], path: str) -> None:
    """Draws the points to a PNG, SVG or PDF file.

    Raises:
        gc3.UserError: As `gc3.support.drawing.check`, or the file cannot be written.
    """
    drawing.check(path)
    from matplotlib.figure import Figure  # noqa: PLC0415

    ranks = sorted({p.ranks for p in points})
    names = [name for name in COLLECTIVES if any(p.collective == name for p in points)]
    rows = len(names) + 1
    figure: Any = Figure(figsize=(4.2 * len(ranks) + 0.4, 2.6 * rows), layout="constrained")
    # A row has one scale, so that the numbers of ranks can be compared.
    axes: Any = figure.subplots(rows, len(ranks), squeeze=False, sharey="row")
    for column, n in enumerate(ranks):
        for row, name in enumerate(names):
            there = sorted((p for p in points if p.ranks == n and p.collective == name), key=lambda p: p.size)
            _times(axes[row][column], there, f"{name}, {n} ranks")
        _speedups(axes[-1][column], [p for p in points if p.ranks == n], names, n)
    for row in axes[:, 0]:
        row.set_ylabel("time" if row is not axes[-1][0] else "times faster than the best peer", fontsize=8, color=_INK)
    if axes[-1][0].get_legend_handles_labels()[0]:
        axes[-1][0].legend(fontsize=7, frameon=False)
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=min(len(labels), 2 * len(ranks)), frameon=False)
    drawing.save(figure, path, dpi=100)


def _times(axis: Any, points: Sequence[Point], title: str) -> None:
    def line(label: str, time: Callable[[Point], float | None], **style: Any) -> None:
        drawn = [(p.size, us) for p in points if (us := time(p)) is not None]
        if drawn:
            axis.plot(*zip(*drawn, strict=True), label=label, **style)

    def median(name: str) -> Callable[[Point], float | None]:
        return lambda p: p.times[name].median_us if name in p.times else None

    def of_peer(peer: str) -> Callable[[Point], float | None]:
        return lambda p: None if (best := p.best(peer)) is None else p.times[best].median_us

    line(OURS, median(OURS), color=_COLORS[OURS], marker="o", markersize=3, linewidth=2, zorder=3)
    line("gc3 from Python", median(PYTHON), color=_COLORS[PYTHON], linewidth=1)
    for peer in sorted({peer for p in points for peer in p.peers.values()}):
        line(peer, of_peer(peer), color=_COLORS.get(peer, _INK), marker="s", markersize=2.5, linewidth=1)
    line("memory bound", lambda p: p.bound_us, color=_INK, linestyle=":", linewidth=1)
    axis.set_yscale("log")
    axis.minorticks_off()
    axis.yaxis.set_major_formatter(_duration)
    _dress(axis, title)


def _speedups(axis: Any, points: Sequence[Point], names: Sequence[str], ranks: int) -> None:
    for name, color in zip(names, _BY_COLLECTIVE, strict=False):
        drawn = sorted((p.size, s) for p in points if p.collective == name and (s := p.speedup()) is not None)
        if drawn:
            axis.plot(*zip(*drawn, strict=True), label=name, color=color, marker="o", markersize=3, linewidth=1.2)
    axis.axhline(1, color=_INK, linewidth=0.8)
    axis.set_yscale("log", base=2)
    axis.yaxis.set_major_formatter("{x:g}")
    _dress(axis, f"speed-up, {ranks} ranks")


def _dress(axis: Any, title: str) -> None:
    axis.set_xscale("log", base=2)
    axis.set_title(title, fontsize=9, color=_INK)
    axis.xaxis.set_major_formatter(_size)
    axis.tick_params(labelsize=7, colors=_INK)
    axis.grid(visible=True, linewidth=0.3)


def _size(value: float, _position: int | None = None) -> str:
    for power, unit in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        if value >= 1024**power:
            return f"{value / 1024**power:g} {unit}"
    return f"{value:g} B"


def _duration(us: float, _position: int | None = None) -> str:
    for factor, unit in ((1e6, "s"), (1e3, "ms")):
        if us >= factor:
            return f"{us / factor:g} {unit}"
    return f"{us:g} us"
