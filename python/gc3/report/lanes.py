"""The schedule of a run as lanes: threadblocks against time, coloured by what they wait for."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from html import escape
from itertools import zip_longest
from typing import TYPE_CHECKING

import numpy as np

from gc3.report import svg
from gc3.sim.explanation import waited_for
from gc3.support.words import counted

if TYPE_CHECKING:
    from collections.abc import Collection

    from gc3.sim.run_timeline import Run

MOST_LANES = 48
MOST_BARS = 800
WIDTH = 1080
_LEFT = 128
_LANE = 16
_THIN = 0.05  # narrower waits cannot be seen
_SEEN = 0.005  # of the time, before the first step
_PS = 1e-12


@dataclass(frozen=True, slots=True)
class Bar:
    """A step in one tile: a wait, and the work after it; times in seconds."""

    lane: int
    ready: float
    start: float
    end: float
    wait: str
    name: str
    line: str
    critical: bool


@dataclass(frozen=True, slots=True)
class Lanes:
    """The drawing's content."""

    names: list[str]  # by lane
    bars: list[Bar]  # by time
    time_s: float  # the time of the run
    left_out: str  # what is not shown, in words; empty if nothing
    nodes: list[str]  # by lane, the node of the rank; empty if there is one
    cut: float  # when the first step that is left out begins


def lanes(run: Run, ranks: Collection[int] | None = None) -> Lanes:
    """Chooses what to draw of all or some ranks: the critical path, then as many threadblocks of each as of the others.

    Of a threadblock with many steps it takes the first ones.
    """
    records, details = run.why.records, run.details
    rank_of = np.array(run.wired.rank_of(), np.int64)
    on_path = sorted({k for _, _, k in run.why.path_records if k is not None})
    used = {tb for tb in np.unique(records["tb"]).tolist() if ranks is None or int(rank_of[tb]) in ranks}
    tbs_of: dict[int, list[int]] = {}
    busiest = Counter(tb for tb in records["tb"][on_path].tolist() if tb in used)
    for tb in sorted(used, key=lambda tb: -busiest[tb]):
        tbs_of.setdefault(int(rank_of[tb]), []).append(tb)
    in_turn = [tb for several in zip_longest(*(tbs_of[rank] for rank in sorted(tbs_of))) for tb in several]
    first = [tb for tb, _ in busiest.most_common()]
    shown = sorted(list(dict.fromkeys((*first, *(tb for tb in in_turn if tb is not None))))[:MOST_LANES])
    lane_of = {tb: lane for lane, tb in enumerate(shown)}
    critical = np.zeros(len(records), bool)
    critical[on_path] = True
    order = np.lexsort((records["slice"], records["step"], records["tile"], records["tb"]))
    ordered, marked = records[order], critical[order]
    begins = np.flatnonzero(ordered["slice"] == 0)
    ends = np.append(begins[1:], len(ordered))
    mine = np.flatnonzero(np.isin(ordered["tb"][begins], shown))
    mine = mine[np.argsort(ordered["start"][begins[mine]], kind="stable")]
    bars: list[Bar] = []
    for k in mine[:MOST_BARS].tolist():
        first, last = ordered[begins[k]], ordered[ends[k] - 1]
        bars.append(
            Bar(
                lane_of[int(first["tb"])],
                int(first["ready"]) * _PS,
                int(first["start"]) * _PS,
                int(last["end"]) * _PS,
                waited_for(first),
                details.step(int(first["tb"]), int(first["step"]), int(first["tile"])),
                details.line(int(first["tb"]), int(first["step"])),
                bool(marked[begins[k] : ends[k]].any()),
            )
        )
    missing: list[str] = []
    cut = float("inf")
    if len(shown) < len(used):
        missing.append(f"{counted(len(used) - len(shown), 'threadblock')} of {len(used)}")
    if len(mine) > MOST_BARS:
        missing.append(f"{len(mine) - MOST_BARS} later steps of those shown")
        cut = int(ordered["start"][begins[mine[MOST_BARS]]]) * _PS
    names = [f"{int(rank_of[tb])} · tb {details.name(tb)}" for tb in shown]
    nodes = [run.rank_names[int(rank_of[tb])].rpartition(".")[0] for tb in shown]
    return Lanes(names, bars, run.why.time_s, " and ".join(missing), nodes if len(set(nodes)) > 1 else [], cut)


def causes(made: Lanes) -> list[str]:
    """Returns what threadblocks wait for in the drawing; before their first step, for the launch."""
    span = max(made.time_s, _PS)
    waits = {bar.wait for bar in made.bars if (bar.start - bar.ready) * WIDTH > _THIN * span}
    return sorted(waits | {"launch" for _ in _late(made)})


def _late(made: Lanes) -> list[Bar]:
    """The first steps of threadblocks that begin late."""
    begun = {bar.lane: bar for bar in reversed(made.bars)}
    return [bar for bar in begun.values() if bar.ready > _SEEN * made.time_s]


def _wait(cause: str, start: float, end: float, lane: int) -> str:
    return f'<path class="wait w-{cause}" d="M{start:.2f} {35 + _LANE * lane}H{end:.2f}"/>'


def draw(made: Lanes, *, alone: bool = True, head: str = "") -> str:
    """Returns the drawing; `head`: what it shows, for a file of its own."""
    height = 40 + _LANE * len(made.names)
    span = max(made.time_s, 1e-12)
    scale = (WIDTH - _LEFT - 10) / span
    parts = [svg.text(0, 14, "rank · tb", kind="soft")]
    for lane, name in enumerate(made.names):
        y = 28 + _LANE * lane
        parts.append(svg.text(0, y + 11, name))
        parts.append(f'<path class="grid" d="M{_LEFT} {y + _LANE - 1}H{WIDTH}"/>')
        if lane and name.partition(" ")[0] != made.names[lane - 1].partition(" ")[0]:  # the next rank
            parts.append(f'<path d="M0 {y - 1}H{WIDTH}" style="stroke:var(--soft);stroke-opacity:.5"/>')
        if made.nodes and (lane == 0 or made.nodes[lane] != made.nodes[lane - 1]):
            parts.append(f'<path d="M0 {y - 1}H{WIDTH}" style="stroke:var(--soft)"/>')
            parts.append(svg.text(_LEFT - 6, y + 11, made.nodes[lane], kind="soft", anchor="end"))
    ticks = "".join(
        f'<g transform="translate({_LEFT + at * scale:.1f} 0)"><path class="grid" d="M0 20V{height - 12}"/>'
        f"{svg.text(0, 14, svg.time_text(at), kind='soft', anchor='middle')}</g>"
        for at in (0.0, *svg.round_ticks(span))
    )
    parts.append(f'<g class="ticks">{ticks}</g>')
    bars = [_wait("launch", 0, bar.ready * scale, bar.lane) for bar in _late(made)]
    for number, bar in enumerate(made.bars):
        y = 28 + _LANE * bar.lane
        wait, work = (bar.start - bar.ready) * scale, (bar.end - bar.start) * scale
        if wait > _THIN:
            bars.append(_wait(bar.wait, bar.ready * scale, bar.start * scale, bar.lane))
        mark = " crit" if bar.critical else ""
        bars.append(
            f'<rect class="bar c-threadblock{mark}" data-k="{number}" x="{bar.start * scale:.2f}" y="{y + 1}" '
            f'width="{max(work, 0.4):.2f}" height="{_LANE - 4}">'
            + (f"<title>{escape(bar.name)}</title>" if alone else "")
            + "</rect>"
        )
    parts.append(
        f'<svg x="{_LEFT}" y="0" width="{WIDTH - _LEFT - 10}" height="{height}">'
        f'<g class="bars">{"".join(bars)}</g></svg>'
    )
    if alone and made.cut < span:  # a page tells it below
        told = "later steps are not drawn"
        at = min(_LEFT + made.cut * scale + 6, WIDTH - svg.text_width(told))
        parts.append(svg.text(at, height - 1, told, kind="soft"))
    if alone and made.left_out:
        height += _LANE
        parts.append(svg.text(0, height - 3, f"not shown: {made.left_out}", kind="soft"))
    keys = [
        ('class="bar c-threadblock"', "working"),
        ('class="bar c-threadblock crit"', "on the critical path"),
        *((f'class="wait w-{cause}" d="M0 6H24"', f"waiting: {cause}") for cause in causes(made)),
    ]
    title = "Schedule: threadblocks against time"
    inner = "".join(parts)
    name = "" if alone else "lanes"
    return svg.document(inner, WIDTH, height, title, alone=alone, name=name, head=head, keys=keys)
