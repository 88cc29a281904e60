"""A program on a machine as one page for a browser: self-contained, drawn in SVG, for light and dark, keyboards too."""

from __future__ import annotations

import json
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from gc3.report import flow, lanes, loads, svg, times
from gc3.report.alike import Flow, alike
from gc3.report.style import short_size
from gc3.report.svg import time_text
from gc3.sim.trust import distinguishable, per_cent, span
from gc3.support.words import counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gc3.sim.predict import Prediction
    from gc3.topologies.model import Topology

_MOST_LINKS = 40
_MOST_DRAWN = 64  # ranks of a machine: more are too small to see, and make a large page


@dataclass(frozen=True, slots=True)
class Listing:
    """The lines of a file of the user's code that made the program.

    Attributes:
        name: The file's name.
        rows: Number, text, and for the lines that count their steps, share of the critical path and of waits.
    """

    name: str
    rows: Sequence[tuple[int, str, tuple[int, float, float] | None]]


@dataclass(frozen=True, slots=True)
class Content:
    """What the page shows."""

    title: str  # the program and the machine
    about: str  # the program in a sentence
    source: Sequence[tuple[str, str]]  # of what, and where it comes from
    proof: Sequence[str]  # the proof in sentences
    prediction: Prediction  # the explained run that is drawn
    topology: Topology  # its machine
    listings: Sequence[Listing]  # the source
    lanes: lanes.Lanes  # the schedule
    flow: Flow  # the messages
    # times by size, in seconds: the program first, then baselines and measurements
    series: Mapping[str, Sequence[tuple[int, float]]]
    errors: Mapping[str, Mapping[int, float]]  # what predicted times may be wrong by, by series and size
    bottleneck: Sequence[str]  # sentences
    advice: Sequence[str]  # sentences
    remarks: Sequence[str]  # what the reader should know besides


def write(content: Content) -> str:
    """Returns the page."""
    p = content.prediction
    sections = [
        ("times", "Times by size", _times(content)),
        ("why", "What takes the time", _why(content)),
        ("source", "Source, with the time of each line", _source(content)),
        ("steps", "Step by step", _steps(content)),
        ("schedule", "Schedule", _schedule(content)),
        ("machine", "Machine and load", _machine(content)),
        ("proof", "Proof", _list(content.proof)),
        (
            "origin",
            "Where the times come from",
            _table("What predictions rest on", ["of", "from"], content.source, kind="told"),
        ),
    ]
    contents = "".join(f'<a href="#{key}">{escape(title)}</a>' for key, title, _ in sections)
    body = "".join(
        f'<section id="{key}" aria-labelledby="h-{key}"><h2 id="h-{key}">{escape(title)}</h2>{inner}</section>\n'
        for key, title, inner in sections
    )
    error = content.errors.get(next(iter(content.series), ""), {}).get(p.size, 0.0)
    numbers = [
        (short_size(p.size), "size of the call"),
        (time_text(p.time_s), f"predicted time{f', error {per_cent(error)}' if error else ''}"),
        (f"{p.busbw:.4g} GB/s", "bus bandwidth"),
        (f"{p.bound_s / p.time_s:.0%}" if p.time_s and p.bound_s else "—", "of what the busiest link allows"),
    ]
    tiles = "".join(f"<div><b>{escape(value)}</b><span>{escape(name)}</span></div>" for value, name in numbers)
    data = json.dumps(
        _data(content),
        separators=(",", ":"),
    ).replace("<", "\\u003c")
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(content.title)}</title>\n<style>{svg.style()}{_asset('css')}</style>\n</head>\n<body>\n"
        f'<header><h1>{escape(content.title)}</h1><div class="tiles">{tiles}</div>'
        f"{_list([*verdict(content), *content.bottleneck[:1], *content.advice[:1]])}"
        f'<p class="soft">{escape(content.about)}</p>'
        f"{_list(content.remarks, kind='remarks')}"
        f'<nav aria-label="Sections">{contents}</nav></header>\n<main>\n{body}</main>\n'
        f'<script type="application/json" id="data">{data}</script>\n'
        f"<script>{_asset('js')}</script>\n</body>\n</html>\n"
    )


def verdict(content: Content) -> list[str]:
    """Returns how the program compares with the first baseline, by size; nothing without one."""
    own, other = [*content.series, "", ""][:2]
    if "predicted" not in own or not other or "measured" in other:
        return []
    theirs = dict(content.series[other])
    found: list[tuple[str, list[int], list[float]]] = []
    for size, seconds in content.series[own]:
        if seconds and size in theirs:
            known = [content.errors.get(name, {}).get(size, 0.0) for name in (own, other)]
            word = ("slower than" if seconds > theirs[size] else "faster than") + f" {other}"
            word = word if distinguishable(seconds, theirs[size], *known) else f"not distinguishable from {other}"
            if not found or found[-1][0] != word:
                found.append((word, [], []))
            found[-1][1].append(size)
            found[-1][2].append(theirs[size] / seconds)
    told = [(span(at), word, list(dict.fromkeys(f"{each:.2f}" for each in (min(x), max(x))))) for word, at, x in found]
    return [f"{sizes}: {word}, {' to '.join(x)} times its speed." for sizes, word, x in told]


def _asset(ending: str) -> str:
    return files("gc3.report").joinpath(f"program_page.{ending}").read_text("utf-8")


def _list(sentences: Sequence[str], kind: str = "") -> str:
    rows = "".join(f"<li>{escape(text)}</li>" for text in sentences)
    return f"<ul{f' class={kind}' if kind else ''}>{rows}</ul>" if rows else ""


def _scroll(name: str, inner: str) -> str:
    return f'<div class="scroll" tabindex="0" role="group" aria-label="{escape(name)}">{inner}</div>'


def _table(name: str, heads: Sequence[str], rows: Sequence[Sequence[str]], kind: str = "") -> str:
    head = "".join(f'<th scope="col">{escape(h)}</th>' for h in heads)
    body = "".join(
        "<tr>"
        + "".join(
            f"<{'th scope=row' if k == 0 else 'td'}>{escape(c)}</{'th' if k == 0 else 'td'}>" for k, c in enumerate(row)
        )
        + "</tr>"
        for row in rows
    )
    return _scroll(
        name,
        f"<table{f' class={kind}' if kind else ''}><caption>{escape(name)}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>",
    )


def _times(content: Content) -> str:
    names = list(content.series)
    by_size: dict[int, dict[str, float]] = {}
    for name, line in content.series.items():
        for size, seconds in line:
            by_size.setdefault(size, {})[name] = seconds
    own = names[0] if names else ""
    baselines = [name for name in names if "predicted" not in name and "measured" not in name]
    rows: list[list[str]] = []
    for size, found in sorted(by_size.items()):
        row = [short_size(size)]
        for name in names:
            if name not in found:
                row.append("")
                continue
            known = [content.errors.get(each, {}).get(size, 0.0) for each in (name, own)]
            told = (
                f"{found[name] / found[own]:.2f}x" if distinguishable(found[name], found.get(own, 0), *known) else "~"
            )
            ratio = f" ({told})" if name != own and found.get(own) else ""
            row.append(time_text(found[name]) + ratio)
        rows.append(row)
    return _scroll(
        "Chart of times by size", times.draw(content.series, alone=False, errors=content.errors, baselines=baselines)
    ) + _details(
        "Table of times",
        _table(
            "Times by size; (x): times the program's; (~): not distinguishable",
            ["size", *names],
            rows,
        ),
    )


def _details(name: str, inner: str) -> str:
    return f"<details><summary>{escape(name)}</summary>{inner}</details>"


def _why(content: Content) -> str:
    why, total = content.prediction.explanation, content.prediction.time_s or 1.0
    bar, legend = "", ""
    for cause, seconds in (why.causes if why is not None else {}).items():
        share = seconds / total
        fill = svg.CAUSES.get(cause, "#999999")
        bar += f'<span style="width:{100 * share:.2f}%;background:{fill}" title="{cause} {share:.1%}"></span>'
        legend += f'<li><i style="background:{fill}"></i>{cause} {time_text(seconds)} ({share:.1%})</li>'
    return (
        f'<div class="stack" role="img" aria-label="Critical path by cause">{bar}</div><ul class="legend">{legend}</ul>'
        f"{_list(content.bottleneck)}<h3>What may help</h3>{_list(content.advice)}"
    )


def _source(content: Content) -> str:
    if not content.listings:
        return (
            "<p>Nothing is known about the lines of this program: only compiled programs and .gc3 files have them.</p>"
        )
    out = ""
    for listing in content.listings:
        rows, last = "", 0
        for number, text, counts in listing.rows:
            if last and number > last + 1:
                rows += '<tr class="gap"><td></td><td></td><td></td><td>⋮</td><td></td></tr>'
            last = number
            marks = "<td></td><td></td><td></td>"
            if counts is not None:
                steps, share, waits = counts
                meter = f'<span class="meter" style="width:{100 * share:.1f}%"></span>'
                marks = f"<td class=share>{meter}{share:.1%}</td><td>{waits:.0%}</td><td>{steps}</td>"
            kind = ' class="hot"' if counts is not None else ""
            rows += f"<tr{kind}>{marks}<td class=n>{number}</td><td><code>{escape(text)}</code></td></tr>"
        head = "".join(f'<th scope="col">{h}</th>' for h in ("time", "waits", "steps", "line", "code"))
        out += _scroll(
            f"Source of {listing.name}",
            f"<table class=code><caption>{escape(listing.name)}</caption><thead><tr>{head}</tr></thead>"
            f"<tbody>{rows}</tbody></table>",
        )
    return (
        "<p class=soft>time: share of the critical path. waits: the part of its threadblocks' time that is waiting. "
        "steps: instructions of all ranks. A line that calls a function includes what that function does.</p>" + out
    )


def _left_out(what: str) -> str:
    return f'<p class="soft">Not shown: {escape(what)}.</p>' if what else ""


def _data(content: Content) -> dict[str, Any]:
    """What the script shows: of bars text, line, start, end, wait in us, its cause, whether it is critical."""
    lines: dict[str, int] = {}
    causes = list(svg.CAUSES)
    bars = [
        [
            bar.name,
            lines.setdefault(bar.line, len(lines)),
            *(round(1e6 * t, 3) for t in (bar.start, bar.end, bar.start - bar.ready)),
            causes.index(bar.wait),
            int(bar.critical),
        ]
        for bar in content.lanes.bars
    ]
    rounds = [
        [
            [told, lines.setdefault(some[0].line, len(lines)), [[m.src, m.dst, m.what] for m in some]]
            for told, some in alike(content.flow, number)
        ]
        for number in range(content.flow.rounds)
    ]
    return {"bars": bars, "moves": rounds, "rounds": len(rounds), "lines": list(lines), "causes": causes}


def _steps(content: Content) -> str:
    made = content.flow
    if not made.moves:
        return "<p>This program sends nothing.</p>" + _left_out(made.left_out)
    return (
        '<p class="soft">Step k: the messages with k - 1 messages before them on their way. += reduces. '
        f"Messages that are the same up to the ranks' numbers are told once.{_parts(made)}</p>"
        '<div class="controls"><button id="back">Back</button><button id="play" aria-pressed="false">Play</button>'
        '<button id="forward">Forward</button>'
        f'<label>Step <input id="round" type="range" min="1" max="{made.rounds}" value="1"></label>'
        f'<output id="at" for="round" aria-live="polite">1 of {made.rounds}</output></div>'
        f'<div class="side">{_scroll("Messages of the step", flow.draw(made, alone=False))}'
        '<ol id="moves" class="scroll" tabindex="0" aria-label="Messages of the step, as text"></ol></div>'
        + _left_out(made.left_out)
    )


def _parts(made: Flow) -> str:
    most = max(move.times for move in made.moves)
    return f" Each stands for up to {most}, which move a part of its chunks each." if most > 1 else ""


def _schedule(content: Content) -> str:
    made = content.lanes
    legend = "<li><i class=work></i>working</li><li><i class=critical></i>critical path</li>" + "".join(
        f'<li><svg width="24" height="10"><path class="wait w-{c}" d="M0 6H24"/></svg>waiting: {c}</li>'
        for c in lanes.causes(made)
    )
    return (
        '<div class="controls"><button id="in">Zoom in</button><button id="out">Zoom out</button>'
        '<button id="left">Left</button><button id="right">Right</button><button id="whole">Whole</button>'
        '<button id="next">Next step of the critical path</button></div>'
        f'<ul class="legend">{legend}</ul>{_scroll("Schedule", lanes.draw(made, alone=False))}'
        '<p id="told" aria-live="polite">Point at a step, or walk along the critical path. Drag to move; zoom with '
        "Ctrl and the wheel.</p>" + _left_out(made.left_out)
    )


def _machine(content: Content) -> str:
    p, topology = content.prediction, content.topology
    ranked = sorted(p.use.items(), key=lambda item: -item[1][0])
    rows = [
        [name, f"{size / 1e6:.4g} MB", f"{busy / p.time_s:.1%}" if p.time_s else ""]
        for name, (busy, size) in ranked[:_MOST_LINKS]
    ]
    more = len(ranked) - len(rows)
    table = _table("Links by load", ["link", "carried", "busy"], rows)
    note = _left_out(f"{more} links with less load" if more > 0 else "")
    if topology.rank_count > _MOST_DRAWN:
        return _left_out(f"a drawing of {counted(topology.rank_count, 'rank')}") + table + note
    picture = loads.draw(topology, p.use, p.time_s, alone=False)
    return _scroll("Machine with the load of every link", picture) + _details("Table of the load", table + note)


def plain(content: Content) -> dict[str, Any]:
    """Returns the page's numbers as plain data."""
    why = content.prediction.explanation
    return {
        "title": content.title,
        "size": content.prediction.size,
        "time_us": content.prediction.time_us,
        "critical_path_us": {} if why is None else {k: 1e6 * v for k, v in why.causes.items()},
        "errors": {name: list(errors.items()) for name, errors in content.errors.items()},
        "series_us": {n: [[s, 1e6 * t] for s, t in line] for n, line in content.series.items()},
        "verdict": verdict(content),
        "bottleneck": list(content.bottleneck),
        "advice": list(content.advice),
        "not_shown": [text for text in (content.lanes.left_out, content.flow.left_out) if text],
    }
