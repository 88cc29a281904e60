"""The tables and pictures of docs/performance.md and docs/evidence.md, made of the files in benchmarks/results."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from statistics import geometric_mean as mean
from typing import Any

from gc3.report import svg, times
from gc3.report.style import COLORS, short_size
from gc3.sim.trust import per_cent
from generated import ROOT, Files

PAGE, EVIDENCE = ROOT / "docs" / "performance.md", ROOT / "docs" / "evidence.md"
PICTURES = ROOT / "docs" / "images"
RESULTS = ROOT / "benchmarks" / "results"
_BEGIN, _END = "<!-- made by tools/performance.py: {} -->\n", "<!-- end -->\n"
_KIB, _MIB = 1 << 10, 1 << 20
_COLLECTIVES = ("allreduce", "allgather", "reducescatter", "alltoall", "broadcast")
_CALLS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
_SIZES = (_KIB, _MIB, 64 * _MIB)
_CPP = "gc3 in C++"
_FEW = 10  # lost points that a page lists
_Shown = tuple[list[str], list[str], dict[str, str]]  # a summary, tables, and pictures by their titles


def read(kind: str) -> list[tuple[str, Any]]:
    """Returns the results of a kind of comparison by the names of their files."""
    return [(path.stem, json.loads(path.read_text())) for path in sorted(RESULTS.glob(f"{kind}*.json"))]


def files() -> Files:
    """Returns the pages with their tables made anew, and their pictures."""
    pages = {page: page.read_text() for page in (PAGE, EVIDENCE)}
    made: dict[Any, str] = {}
    for kind, lines in KINDS.items():
        page = EVIDENCE if kind == "evidence" else PAGE
        text = pages[page]
        before, begin, rest = text.partition(_BEGIN.format(kind))
        after = rest.partition(_END)[2]
        pages[page] = before + begin + "\n" + "\n".join(_each(kind, lines, made)) + "\n\n" + _END + after
    return {**pages, **made}


def _each(kind: str, lines: Any, made: dict[Any, str]) -> Iterator[str]:
    """Yields each file of results: its summary and its pictures, and of the first one the tables as well."""
    for number, (name, data) in enumerate(read(kind)):
        found, tables, pictures = lines(data)
        yield from ([""] if number else [])
        yield from (_about(data[0] if kind == "pytorch" else data), "", *found)
        yield from ([] if number else tables)
        for at, (title, picture) in enumerate(pictures.items(), 1):
            path = PICTURES / (f"{name}.svg" if at == 1 else f"{name}-{at}.svg")
            made[path] = picture
            yield from ("", f"![{title}](images/{path.name})")


def _head(title: str, data: Any) -> str:
    """Returns the title of a picture, with the machine and the date."""
    return f"{title}: {data['machine']['cpu']}, {data['machine']['cores']} cores, {data['date']}"


def _about(data: Any) -> str:
    """Returns the machine, the date, the command and the versions of a file of results."""
    machine = data.get("machine")
    where = f"**{machine['cpu']}, {machine['cores']} cores**" if machine else "**Simulated**"
    versions = {point["version"] for point in data.get("points", ()) if "version" in point} or {data["version"]}
    peers = "".join(f"; {name}" for name in data.get("libraries", {}).values())
    return f"{where}, {data['date']}, `{data['command']}`; gc3 {', '.join(sorted(versions))}{peers}."


def _table(*columns: str, rows: Iterable[Sequence[str]], text: int = 1) -> list[str]:
    """Returns a table whose first columns are text."""
    lines = [columns, ["---"] * text + ["---:"] * (len(columns) - text), *rows]
    return [f"| {' | '.join(line)} |" for line in lines]


def _us(value: float) -> str:
    """Three digits: more of them would be noise."""
    return svg.time_text(float(f"{value:.3g}") / 1e6)


def _processes(data: Any) -> _Shown:
    known = {(p["collective"], p["ranks"], p["size"]): p for p in data["points"]}

    def cell(p: Any) -> str:
        if p is None or p["speedup"] is None:
            return ""
        ours, peer = p["times"]["gc3"], p["times"][p["best_peer"]]
        low = min(peer["rounds_us"]) / max(ours["rounds_us"])
        high = max(peer["rounds_us"]) / min(ours["rounds_us"])
        return f"{_us(ours['median_us'])}, {p['speedup']:.2f} ({low:.2f} to {high:.2f})"

    rows: list[list[str]] = [
        [f"{name}, {ranks}", *(cell(known.get((name, ranks, size))) for size in _SIZES)]
        for name in _COLLECTIVES
        for ranks in sorted({p["ranks"] for p in data["points"]})
    ]
    found = data["summary"]
    means = [f"{n} ranks {mean:.2f}" for n, mean in found["by_ranks"].items()]
    means += [f"{name} alone {mean:.2f}" for name, mean in found["by_peer"].items()]
    rotated = data.get("rotated", {}).get("speedup")
    means += [f"buffers that no cache holds {rotated:.2f}"] if rotated else []
    summary = [
        f"All {found['points']} points: {found['speedup']:.2f} times as fast as the best peer in the geometric mean "
        f"({', '.join(means)}); least {found['slowest']:.2f}; a peer wins {found['lost']} points.",
        *(f"\nLeft out: {name}: {why}." for name, why in data["failed"].items()),
    ]
    lost = [p for p in data["points"] if p["speedup"] and p["speedup"] < 1]
    if 0 < len(lost) <= _FEW:
        rows_lost = [
            [
                f"{p['collective']}, {p['ranks']}, {short_size(p['size'])}",
                *(
                    _us(t)
                    for t in (p["bound_us"], p["times"][p["best_peer"]]["median_us"], p["times"]["gc3"]["median_us"])
                ),
                data["reasons"].get(f"{p['collective']} {p['ranks']} {p['size']}", ""),
            ]
            for p in lost
        ]
        summary += ["", *_table("Lost", "memory's bound", "best peer", "gc3", "why", rows=rows_lost)]
    messages: list[str] = []
    for name, said in (("oneway", "one way"), ("window", "64 under way")):
        some = [p["speedup"] for p in data.get("messages", ()) if p["collective"] == name and p["speedup"]]
        messages += [f"{said} {mean(some):.2f} (least {min(some):.2f})"] if some else []
    summary += [f"\nMessages of 8 B to 16 MiB between 2 ranks: {', '.join(messages)}."] if messages else []
    lines = ["", *_table("Collective, ranks", *map(short_size, _SIZES), rows=rows)]
    conditions = {"a session each": "sessions", "beside loops": "loaded"}
    if data.get("loaded"):
        rows = []
        for ranks in found["by_ranks"]:
            for said, key in conditions.items():
                for p in data[key]:
                    if (p["collective"], p["ranks"], p["size"]) == ("allreduce", int(ranks), _KIB):
                        some = [p["times"].get(name) for name in ("gc3", p["best_peer"])]
                        shown = [f"{_us(s['median_us'])} (p99 {_us(s['p99_us'])})" if s else "" for s in some]
                        rows.append([f"{ranks} ranks, {said}", *shown])
        summary += ["", *_table("AllReduce of 1 KiB", "gc3", "best peer", rows=rows)]
    series: dict[str, list[tuple[int, float]]] = {}
    for p in data["points"]:
        if (p["collective"], p["ranks"]) == ("allreduce", 2):
            series.setdefault("gc3", []).append((p["size"], p["times"]["gc3"]["median_us"] / 1e6))
            for library in data["libraries"]:
                settings = [t["median_us"] for n, t in p["times"].items() if p["peers"].get(n) == library]
                if settings:
                    series.setdefault(library, []).append((p["size"], min(settings) / 1e6))
    title = "AllReduce on 2 ranks, time by size"
    return summary, lines, {title: times.draw(series, head=_head(title, data))}


def _hosts(data: Any) -> _Shown:
    sizes = (_KIB, 512 * _KIB, 32 * _MIB)
    free = [p for p in data["points"] if p["rate"] == "none"]
    places = sorted({(p["hosts"], p["ranks_per_host"]) for p in free})

    def ratio(p: Any) -> float:
        return min(us[0] for name, us in p["us"].items() if name != "gc3") / p["us"]["gc3"][0]

    known = {(p["collective"], p["hosts"], p["ranks_per_host"], p["size"]): p for p in free}
    rows: list[list[str]] = []
    for name in _COLLECTIVES:
        for place in places:
            some = [known.get((name, *place, size)) for size in sizes]
            shown = [f"{_us(p['us']['gc3'][0])} ({_us(p['us']['gc3'][1])}), {ratio(p):.2f}" if p else "" for p in some]
            rows.append([f"{name}, {place[0]}x{place[1]}", *shown])
    means = [
        f"{a}x{b} {mean(s):.2f} (least {min(s):.2f})"
        for a, b in places
        if (s := [ratio(p) for p in free if (p["hosts"], p["ranks_per_host"]) == (a, b)])
    ]
    shares: list[str] = []
    for p in data["points"]:
        if p["rate"] == "1gbit" and p["collective"] == "allreduce":
            bound_us = 2 * (p["hosts"] - 1) / p["hosts"] * p["size"] / 125  # each host's bytes, at 125 bytes per us
            shares.append(f"{p['hosts']}x{p['ranks_per_host']} {100 * bound_us / p['us']['gc3'][0]:.0f} %")
    summary = [
        f"Hosts x ranks on each, times as fast as the best peer, geometric mean: {', '.join(means)}. At 1 Gbit/s an "
        f"AllReduce of 16 MiB reaches of the link's bound: {', '.join(shares)}."
    ]
    lines = ["", *_table("Collective, hosts x ranks", *map(short_size, sizes), rows=rows)]
    series: dict[str, list[tuple[int, float]]] = {}
    for p in free:
        if (p["collective"], p["hosts"], p["ranks_per_host"]) == ("allreduce", 2, 2):
            for name, us in sorted(p["us"].items(), key=lambda pair: (pair[0] != "gc3", pair[0])):
                series.setdefault(name, []).append((p["size"], us[0] / 1e6))
    title = "AllReduce on 2 hosts of 2 ranks, time by size"
    return summary, lines, {title: times.draw(series, head=_head(title, data))}


def _pytorch(data: Any) -> _Shown:
    def gain(p: Any) -> float:
        return p["us"]["gloo"]["median"] / p["us"][_CPP]["median"]

    def cell(p: Any) -> str:
        if p is None:
            return ""
        p99 = p["us"][_CPP].get("p99")
        return f"{_us(p['us'][_CPP]['median'])}{f' ({_us(p99)})' if p99 else ''}, {gain(p):.3g}"

    first = {(p["call"], p["ranks"], p["bytes"]): p for p in data[0]["points"] if "call" in p}
    sizes = (_KIB, _MIB, 16 * _MIB)
    rows: list[list[str]] = [
        [f"{call}, {ranks}", *(cell(first.get((call, ranks, size))) for size in sizes)]
        for call in _CALLS
        for ranks in sorted({ranks for _, ranks, _ in first})
    ]
    lines = ["", *_table("Call, ranks", *map(short_size, sizes), rows=rows)]
    rows = [
        [f"`{run['command'].partition('.py ')[2]}`", f"{len(gains)}", f"{mean(gains):.1f}", f"{min(gains):.2f}"]
        for run in data
        if run["command"] and (gains := [gain(p) for p in run["points"]])
    ]
    summary = _table("Gloo / gc3 in C++, all points of", "points", "mean", "least", rows=rows)
    steps = [p for run in data for p in run["points"] if "step" in p]
    rows = []
    for p in steps:
        us = [p["us"].get(name) for name in ("gloo", _CPP, "alone")]
        rows.append([f"{p['step']}, {p['ranks']}", *(_us(s["median"]) if s else "" for s in us), f"{gain(p):.2f}"])
    lines += ["", *_table("Step, ranks", "Gloo", _CPP, "no calls", "Gloo / C++", rows=rows)]
    series: dict[str, list[tuple[int, float]]] = {}
    for (call, ranks, size), p in first.items():
        if (call, ranks) == ("all_reduce", 2):
            for name in (_CPP, "gc3 in Python", "gloo"):
                series.setdefault(name, []).append((size, p["us"][name]["median"] / 1e6))
    title = "all_reduce on 2 ranks, time by size"
    pictures = {title: times.draw(series, head=_head(title, data[0]))}
    if bars := [bar for p in steps for bar in _parts(p)]:
        title = "Training steps, ms"
        keys = ("computation", "computation that hides calls", "calls that nothing hides, and copies of FSDP2")
        pictures[title] = _bars(bars, _head(title, data[0]), keys)
    return summary, lines, pictures


def _applications(data: Any) -> _Shown:
    rows: list[list[str]] = []
    bars: list[tuple[str, float]] = []
    for p in data["points"]:
        by = {row["library"]: row for row in p["rows"]}
        ours, mpi = by["gc3"], by.get("mpi4py")
        others = [row["ms"] for name, row in by.items() if name.startswith("gc3 ")]
        cells = [f"{ours['ms']:.3g} ms", f"{100 * ours['communication']:.0f} %", f"{ours['ratio']:.2f}"]
        cells += [f"{mpi['ms'] / ours['ms']:.2f}" if mpi else "", ", ".join(f"{ms:.3g}" for ms in others)]
        rows.append([p["case"], *cells])
        bars.append((p["case"], ours["ratio"]))
    columns = ("Application", "gc3, a step", "in calls", "Gloo / gc3", "MPI / gc3", "other programs, ms")
    title = "Time with Gloo, by that with gc3"
    return [], _table(*columns, rows=rows), {title: _bars(bars, _head(title, data))}


def _papers(data: Any) -> _Shown:
    claims = [c for c in data["claims"] if not c["given"]]
    given = [c for c in data["claims"] if c["given"]]
    every = Counter(c["paper"] for c in claims)
    held = Counter(c["paper"] for c in claims if c["reproduced"])
    kinds = [
        f"{sum(c['reproduced'] for c in claims if c['kind'] == kind)} of {sum(c['kind'] == kind for c in claims)}"
        for kind in ("A", "B")
    ]
    lines = [
        f"{kinds[0]} claims that counting decides (A) and {kinds[1]} that rates and launches decide (B) are computed "
        "and reproduced: " + ", ".join(f"{held[paper]} of {n} of {paper}" for paper, n in every.items()) + ". Not:",
        "",
    ]
    lines += [f"- `{c['name']}`: paper {c['expected']}, simulated {c['found']}" for c in claims if not c["reproduced"]]
    lines += ["", f"Besides, {len(given)} formulas and constants hold, which nothing computes."] if given else []
    lines += ["", "Not attempted:", "", *(f"- {one['where']}: {one['what']}." for one in data["out_of_reach"])]
    bars = [(f"{paper}: {held[paper]} of {n} claims", 100 * held[paper] / n) for paper, n in every.items()]
    title = "Claims reproduced, per cent"
    return lines, [], {title: _bars(bars, title)}


def _evidence(data: Any) -> _Shown:
    def cells(row: Any) -> list[str]:
        errors = ["" if row[key] is None else per_cent(row[key]) for key in ("median", "p90")]
        right = f"{row['right']} of {row['pairs']}" if row["pairs"] else ""
        return [str(row["points"]), str(row["refused"]), *errors, right]

    def scope(row: Any) -> str:
        return "in sample" if row["in_sample"] else f"held out{', check' * (row['use'] == 'check')}"

    columns = ("calls", "refused", "median", "90 %", "right")
    every = [
        [name, *cells(row), f"{row['within_band']} of {row['banded']}" if "banded" in row else ""]
        for name, row in data["totals"].items()
    ]
    totals = _table("All", *columns, "within the band", rows=every)
    rows = [[f"{r['source']}: {r['machine']}, {r['library']}", scope(r), *cells(r)] for r in data["sources"]]
    lines = ["", *_table("Source: machine, library", "scope", *columns, rows=rows, text=2), ""]
    notes = dict.fromkeys(r["note"] for r in data["sources"] if r["note"])
    lines += [f"{note[0].upper()}{note[1:]}." for note in notes]
    lines += ["", "Held out and further off than the goal, a median of 15 % and 35 % in nine of ten calls:", ""]
    lines += dict.fromkeys(f"- {r['source']}: {r['why']}." for r in data["sources"] if r["why"])
    lines += ["", "Alike in GPUs, nodes and line rates: what one prediction for two networks is off by at least:", ""]
    lines += [
        f"- {r['one']} and {r['other']}, {r['collective']}, {r['points']} sizes: median {per_cent(r['median'])}, "
        f"90 % {per_cent(r['p90'])}."
        for r in data["unlike"]
    ]
    known = [r for r in data["sources"] if r["median"] is not None and not r["in_sample"]]
    title = "Held out: median error of predicted times, per cent"
    bars = [(f"{r['source']}: {r['machine']}", 100 * math.expm1(r["median"])) for r in known]
    generations = f"Generations fitted: {', '.join(data['fitted_generations'])}."
    return [*totals, "", generations], lines, {title: _bars(bars, title)}


def _parts(p: Any) -> list[tuple[str, list[float]]]:
    """What a training step consists of with each library, in ms: computations alone, those that hide calls, calls."""
    found: list[tuple[str, list[float]]] = []
    us = {name: one["median"] for name, one in p["us"].items()}
    for name in ("gloo", _CPP):
        if f"calls of {name}" in us:
            exposed = max(0.0, us[name] - us.get("DDP alone", us["alone"]))
            hidden = max(0.0, us[f"calls of {name}"] - exposed)
            parts = [us[name] - exposed - hidden, hidden, exposed]
            found.append((f"{p['step']}, {p['ranks']} ranks, {name}", [part / 1e3 for part in parts]))
    return found


def _bars(values: Sequence[tuple[str, float | Sequence[float]]], head: str, keys: Sequence[str] = ()) -> str:
    """Returns a bar for each value, or one after the other for its parts, which `keys` name."""
    rows = [(name, [one] if isinstance(one, float | int) else list(one)) for name, one in values]
    most = max(sum(row) for _, row in rows) or 1
    left = round(max(svg.text_width(name) for name, _ in rows)) + 10
    parts: list[str] = []
    for number, (name, row) in enumerate(rows):
        y, x = 20 * number, float(left)
        parts.append(svg.text(0, y + 12, name))
        for part, color in zip(row, COLORS, strict=False):
            width = 380 * part / most
            parts.append(f'<rect x="{x:.4g}" y="{y}" width="{width:.1f}" height="15" fill="{color}"/>')
            x += width
        parts.append(svg.text(x + 6, y + 12, f"{float(f'{sum(row):.3g}'):,g}"))
    looks = [(f'fill="{color}"', key) for color, key in zip(COLORS, keys, strict=False)]
    return svg.document("".join(parts), left + 440, 20 * len(rows), head, head=head, keys=looks)


KINDS = {
    "processes": _processes,
    "hosts": _hosts,
    "pytorch": _pytorch,
    "applications": _applications,
    "papers": _papers,
    "evidence": _evidence,
}
