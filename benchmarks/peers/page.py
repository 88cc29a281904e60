"""The tables of docs/processes_performance.md that follow from the results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gc3.cli.sizes import format_size
from peers import record, rows
from peers.points import COLLECTIVES, OURS, PYTHON, ROTATED, Point, Sample
from peers.summary import LARGE, SMALL, Summary, geometric_mean, summarize, worst

_BEGIN, _END = "<!-- made by benchmarks/{}: {} -->\n", "<!-- end -->\n"
_NEAR = 8192  # bytes; the last goal is stated for the smallest size alone


def page(text: str, machines: Sequence[Any]) -> str:
    """Returns the page with its tables made anew."""
    titles = [title(data) for data in machines]
    tables = {"machines": head(machines), "rows": rows.table(machines, titles), "results": results(machines)}
    return filled(text, "versus.py", tables)


def filled(text: str, script: str, tables: Mapping[str, Iterable[str]]) -> str:
    """Returns the page with the lines of each table that a script makes; the other text stays."""
    for name, lines in tables.items():
        before, begin, rest = text.partition(_BEGIN.format(script, name))
        text = before + begin + "\n" + "\n".join(lines) + "\n\n" + _END + rest.partition(_END)[2]
    return text


def title(data: Any) -> str:
    """Returns a machine in a few words."""
    return f"{data['machine']['cpu']}, {data['machine']['cores']} cores"


def drawing_of(data: Any) -> str:
    """Returns the name of the drawing of a machine, in the page's folder."""
    return record.path_of(data).with_suffix(".svg").name


def head(machines: Sequence[Any]) -> Iterable[str]:
    """Yields the lines at the head of the page: the machines, and what was found on each."""
    yield "| Machine | gc3 | Peers | Points | Times faster than the best peer | 2 ranks | 4 ranks | 8 ranks | least |"
    yield "|---|---|---|---:|---:|---:|---:|---:|---:|"
    for data in machines:
        found = summarize(record.points(data))
        ranks = [_number(found.by_ranks.get(n)) for n in (2, 4, 8)]
        cells = [title(data), _versions(data), ", ".join(data["libraries"].values()), str(found.points)]
        yield _row([*cells, _number(found.speedup), *ranks, _number(found.slowest)])


def results(machines: Sequence[Any]) -> Iterable[str]:
    """Yields the tables of each machine."""
    for i, data in enumerate(machines):
        points = record.points(data)
        machine = data["machine"]
        facts = [f"Linux {machine['kernel']}", f"{machine['memory_bytes'] / (1 << 30):.0f} GiB of memory"]
        if "cache_bytes" in machine:
            facts.append(f"{machine['cache_bytes'] / (1 << 20):.0f} MiB of caches")
        if machine.get("autogroup") is not None:
            facts.append(f"sessions are {'' if machine['autogroup'] else 'not '}scheduled as groups")
        yield from ([""] if i else [])
        yield from (f"### {title(data)}", "", f"{', '.join(facts)}. gc3 {_versions(data)}; {_said(data)}.", "")
        yield from (line for name, why in data["failed"].items() for line in (f"Left out: {name}: {why}.", ""))
        yield from _goals(data, points)
        yield from ("", *_means(points), "", *_python(points))
        yield from _rows(points, list(data["libraries"]))
        yield from _waits(points, list(data["libraries"]))
        yield from _conditions(data)
        yield from _lost(data, points)
        yield from ("", f"![Time by size, and how many times faster gc3 is]({drawing_of(data)})")
        for ranks in sorted({p.ranks for p in points}):
            for collective in COLLECTIVES:
                group = [p for p in points if p.ranks == ranks and p.collective == collective]
                if group:
                    yield from ("", f"#### {collective}, {ranks} ranks", "", *table(group, list(data["libraries"])))


def table(group: Sequence[Point], peers: Sequence[str]) -> Iterable[str]:
    """Yields a table of points of one collective and number of ranks."""
    rotated = [name for name in ("rotated: gc3", "best peer", "times faster") if any(p.rotated for p in group)]
    names = ["Size", "gc3", "gc3 from Python", *peers, "best peer", "times faster", *rotated, "bound", "share"]
    yield _row(names)
    yield "|" + "".join("---|" if name == "best peer" else "---:|" for name in names)
    for p in group:
        cells = [format_size(p.size), _times(p.times[OURS]), _times(p.times.get(PYTHON))]
        cells += [_times(p.times.get(p.best(peer) or "")) for peer in peers]
        cells += [p.best() or "", _faster(p.speedup())]
        if rotated:
            q = p.of(ROTATED)
            best = q.best() or ""
            one = "" if best not in q.times else f"{best} {_us(q.times[best].median_us)}"
            cells += [_us(q.times[OURS].median_us), one, _faster(q.speedup())] if p.rotated else ["", "", ""]
        yield _row([*cells, _us(p.bound_us), f"{100 * p.share:.0f} %"])


def _goals(data: Any, points: Sequence[Point]) -> Iterable[str]:
    found = summarize(points)
    gloo = found.from_python.get("gloo", (None, None, None))
    rows: list[tuple[str, str, str, bool | None]] = []

    def goal(what: str, least: float, reached: float | None, unit: str = "") -> None:
        scale = 100 if unit else 1
        shown = "not measured" if reached is None else f"{scale * reached:.{0 if unit else 2}f}{unit}"
        rows.append((what, f"{scale * least:g}{unit}", shown, None if reached is None else reached >= least))

    goal(f"times faster than the best peer, all {found.points} points", 1.5, found.speedup)
    for ranks, mean in found.by_ranks.items():
        goal(f"the same, {ranks} ranks", 1.3, mean)
    goal("the same, the worst point", 0.85, found.slowest)
    goal("points where p99 is no worse than that of the best peer", 0.9, found.p99_kept, " %")
    goal(f"times faster than Gloo, both from Python, up to {format_size(SMALL)}, mean", 5, gloo[1])
    for ranks in sorted(found.by_ranks):
        quiet, loaded = (_smallest(record.points(data, name), ranks) for name in ("quiet", "loaded"))
        if quiet is None or loaded is None:
            continue
        ratio = loaded.times[OURS].median_us / quiet.times[OURS].median_us
        what = f"AllReduce of {format_size(loaded.size)}, {ranks} ranks, loaded"
        rows.append((f"{what}: median, times the quiet one, at most", "2", f"{ratio:.2f}", ratio <= 2))  # noqa: PLR2004
        p99 = loaded.times[OURS].p99_us or 0
        rows.append((f"{what}: p99, us, below", "1000", _us(p99), p99 < 1000))  # noqa: PLR2004
    yield "| Goal, at least | asked | reached | |"
    yield "|---|---:|---:|---|"
    for what, asked, reached, met in rows:
        yield _row([what, asked, reached, "" if met is None else "met" if met else "**missed**"])


def _smallest(points: Sequence[Point], ranks: int) -> Point | None:
    found = [p for p in points if p.ranks == ranks and p.collective == "allreduce" and p.size < _NEAR]
    return min(found, key=lambda p: p.size, default=None)


def _means(points: Sequence[Point]) -> Iterable[str]:
    rotated = [p.of(ROTATED) for p in points if p.rotated]
    columns = [("buffers reused", summarize(points))]
    if rotated:  # at the other points one call's buffers fill the caches
        columns += [
            ("reused, at the points with rotation", summarize([p for p in points if p.rotated])),
            ("buffers rotated", summarize(rotated)),
        ]

    def row(what: str, value: Any) -> str:
        return _row([what, *(value(found) for _, found in columns)])

    yield _row(["Against the best peer, times faster, geometric mean", *(name for name, _ in columns)])
    yield "|---|" + "---:|" * len(columns)
    yield row("all points", lambda s: f"{_number(s.speedup)} ({s.points})")
    yield row("without reducescatter", lambda s: _number(s.without_reducescatter))
    first = columns[0][1]
    for ranks in first.by_ranks:
        yield row(f"{ranks} ranks", lambda s, key=ranks: _number(s.by_ranks.get(key)))
    for name in first.by_collective:
        yield row(name, lambda s, key=name: _number(s.by_collective.get(key)))
    for name in first.by_peer:
        yield row(f"all points, {name} alone", lambda s, key=name: _number(s.by_peer.get(key)))
    yield row("the worst point", lambda s: _number(s.slowest))
    yield row("points that a peer wins", lambda s: str(s.lost))
    yield row("points where p99 is no worse than the best peer's", lambda s: _percent(s.p99_kept))
    yield row("points where p99 is no worse than the least of all settings", lambda s: _percent(s.p99_least))
    yield from ("", _bound(first))


def _bound(found: Summary) -> str:
    bound = ""
    if found.share is not None:
        bound = (
            f"From {format_size(LARGE)} on, the memory bound is {_percent(found.share)} of gc3's time (geometric "
            f"mean), at least {_percent(found.least_share)}. "
        )
    return f"{bound}The Python interface adds {_us(found.python_cost_us or 0)} us (median at the smallest size)."


def _python(points: Sequence[Point]) -> Iterable[str]:
    columns = [
        summarize([p.of(pattern) for p in points if pattern != ROTATED or p.rotated]) for pattern in ("reused", ROTATED)
    ]
    small = format_size(SMALL)
    yield _row(
        ["Both from Python, times faster", "mean", f"mean up to {small}", f"least up to {small}", "rotated: mean"]
    )
    yield "|---|---:|---:|---:|---:|"
    for peer, numbers in columns[0].from_python.items():
        yield _row([peer, *map(_number, numbers), _number(columns[1].from_python.get(peer, (None,))[0])])


def _rows(points: Sequence[Point], peers: Sequence[str]) -> Iterable[str]:
    measured = [p for p in points if p.rows]
    if not measured:
        return
    yield from (
        "",
        "Calls that follow each other without barriers, us for a call (geometric means over the sizes):",
        "",
    )
    shown = [peer for peer in peers if any(p.of("rows").best(peer) for p in measured)]
    yield _row(["", "gc3 from Python", *shown])
    yield "|---|" + "---:|" * (1 + len(shown))
    for ranks, collective in sorted({(p.ranks, p.collective) for p in measured}):
        group = [p.of("rows") for p in measured if (p.ranks, p.collective) == (ranks, collective)]
        bests = [[p.times[name].median_us for p in group if (name := p.best(peer))] for peer in shown]
        ours = geometric_mean(p.times[PYTHON].median_us for p in group)
        yield _row(
            [f"{collective}, {ranks} ranks", *(_number(mean, us=True) for mean in (ours, *map(geometric_mean, bests)))]
        )


def _waits(points: Sequence[Point], peers: Sequence[str]) -> Iterable[str]:
    """Means over the collectives, because what a wait costs depends little on what is moved."""
    measured = [p for p in points if p.waits]
    if not measured:
        return
    yield from (
        "",
        "Each rank sleeps up to 1 ms before each call: us from the last rank's call to the last return, and",
    )
    yield from ("us of processor time of all ranks for a call (geometric means over the collectives):", "")
    shown = [peer for peer in peers if any(p.of("waits").best(peer) for p in measured)]
    yield _row(["Ranks", "Size", "gc3 from Python", "processor", *(x for peer in shown for x in (peer, "processor"))])
    yield "|" + "---:|" * (4 + 2 * len(shown))
    for ranks, size in sorted({(p.ranks, p.size) for p in measured}):
        group = [p.of("waits") for p in measured if (p.ranks, p.size) == (ranks, size)]
        cells = [str(ranks), format_size(size)]
        for peer in (None, *shown):
            samples = [
                p.times[PYTHON] if peer is None else p.times[name]
                for p in group
                if (name := peer and p.best(peer)) or not peer
            ]
            cells.append(_number(geometric_mean(sample.median_us for sample in samples), us=True))
            cells.append(_number(geometric_mean(max(sample.cpu_us or 0, 0.001) for sample in samples), us=True))
        yield _row(cells)


def _conditions(data: Any) -> Iterable[str]:
    quiet = {(p.ranks, p.collective, p.size): p for p in record.points(data)}
    apart = {
        name: {(p.ranks, p.collective, p.size): p for p in record.points(data, name)} for name in ("sessions", "loaded")
    }
    keys = sorted({key for some in apart.values() for key in some}, key=lambda k: (k[0], COLLECTIVES.index(k[1]), k[2]))
    if not keys:
        return
    yield from (
        "",
        'Conditions: "sessions" is a session for each rank, bound to no core; "loaded" is the same beside two busy',
    )
    yield from ("processes. us, median / p95 / p99:", "")
    columns = [(name, who) for name in ("quiet", "sessions", "loaded") for who in ("gc3", "openmpi", "gloo")]
    yield _row(["", *(f"{name}: {who}" for name, who in columns)])
    yield "|---|" + "---:|" * len(columns)
    for ranks, collective, size in keys:
        cells = [f"{collective}, {ranks} ranks, {format_size(size)}"]
        for name, who in columns:
            p = {"quiet": quiet, **apart}[name].get((ranks, collective, size))
            cells.append("" if p is None else _times(p.times.get(OURS if who == "gc3" else p.best(who) or "")))
        yield _row(cells)


def _lost(data: Any, points: Sequence[Point]) -> Iterable[str]:
    lost = worst(points, None)
    if not lost:
        return
    reasons: Mapping[str, str] = data.get("reasons", {})
    yield from ("", "Points that a peer wins (reasons are written by hand into the file of results):", "")
    yield "| Point | gc3, us | best peer, us | | times faster | bound, us | Reason |"
    yield "|---|---:|---:|---|---:|---:|---|"
    for p in lost:
        best = p.best() or ""
        where = f"{p.collective}, {p.ranks} ranks, {format_size(p.size)}"
        times = [_us(p.times[OURS].median_us), _us(p.times[best].median_us), best]
        yield _row([where, *times, _faster(p.speedup()), _us(p.bound_us), reasons.get(record.reason_of(p), "")])


def _versions(data: Any) -> str:
    return ", ".join(sorted({point["version"] for point in data["points"]}))


def _said(data: Any) -> str:
    return ", ".join([*data["libraries"].values(), *(f"no {name} ({why})" for name, why in data["missing"].items())])


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _times(sample: Sample | None) -> str:
    if sample is None:
        return ""
    percentiles = [us for us in (sample.p95_us, sample.p99_us) if us is not None]
    return " / ".join(_us(us) for us in (sample.median_us, *percentiles))


def _faster(speedup: float | None) -> str:
    return "" if speedup is None else f"{speedup:.2f}" if speedup >= 1 else f"**{speedup:.2f}**"


def _number(value: float | None, *, us: bool = False) -> str:
    return "" if value is None else _us(value) if us else f"{value:.2f}"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.0f} %"


def _us(value: float) -> str:
    """Microseconds with three digits or more."""
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 1000 else f"{value:.0f}"  # noqa: PLR2004
