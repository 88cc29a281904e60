"""The comparison of docs/processes_performance.md: gc3 with Open MPI, MPICH and Gloo.

python benchmarks/versus.py [--quick] [--ranks N,...] [--collectives NAME,...] [--rounds N]

Measures with `gc3 bench --vs all`, one collective and number of ranks after the other. The points go into
benchmarks/results/processes.json, where they replace earlier ones of the same kind, so that a part can be done again;
then the drawing and the tables of the page are made of all of them. With --quick it only prints what it measures, on
fewer sizes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gc3.peers import Point, plot, record
from gc3.peers.contest import COLLECTIVES, OURS, PYTHON
from gc3.peers.summary import LARGE, summarize

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "processes.json"
DRAWING = ROOT / "docs" / "processes_performance.svg"
PAGE = ROOT / "docs" / "processes_performance.md"
BEGIN, END = "<!-- made by benchmarks/versus.py -->\n", "<!-- end -->\n"


def measured(collective: str, ranks: int, rounds: int, sizes: list[str]) -> dict[str, Any]:
    """Returns the document that gc3 bench --vs prints."""
    what = ["--collectives", collective, "--ranks", str(ranks), "--rounds", str(rounds), *sizes]
    command = [sys.executable, "-m", "gc3", "bench", "--vs", "all", *what, "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def merged(old: Any, new: Any) -> dict[str, Any]:
    """Returns the results with the new points in the place of the old ones."""

    def kind(point: Any) -> tuple[Any, ...]:
        return point["ranks"], COLLECTIVES.index(point["collective"]), point["size"]

    found = {kind(point): point for document in (old, new) for point in document.get("points", [])}
    points = [found[key] for key in sorted(found)]
    same = {key: new[key] for key in ("machine", "libraries", "missing", "failed")}
    return {**same, "points": points, "summary": asdict(summarize(record.points({"points": points})))}


def write(results: dict[str, Any]) -> None:
    """Writes the results, one line for each point."""
    head = json.dumps({key: value for key, value in results.items() if key != "points"}, indent=1)
    points = ",\n".join(json.dumps(point) for point in results["points"])
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(f'{head[:-2]},\n "points": [\n{points}\n ]\n}}\n')


def tables(results: Any) -> Iterable[str]:
    """Yields the lines of the page that follow from the results."""
    points = record.points(results)
    summary, machine = summarize(points), results["machine"]
    versions = ", ".join(results["libraries"].values())
    yield f"Machine: {machine['cpu']}, {machine['cores']} cores, Linux {machine['kernel']}. Peers: {versions}."
    yield ""
    yield "| Against the best peer at each point | Times faster, geometric mean |"
    yield "|---|---|"
    yield f"| all {summary.points} points | {summary.speedup:.2f} |"
    for names, word in ((summary.by_ranks, " ranks"), (summary.by_collective, "")):
        for name, mean in names.items():
            yield f"| {name}{word} | {mean:.2f} |"
    for name, mean in summary.by_peer.items():
        yield f"| all points, {name} alone | {mean:.2f} |"
    yield ""
    yield (
        f"A peer wins {summary.lost} points; the worst is {summary.slowest:.2f}. From {LARGE >> 20} MiB on, the memory "
        f"bound is {100 * (summary.share or 0):.0f} % of gc3's time (geometric mean), at least "
        f"{100 * (summary.least_share or 0):.0f} %. The Python interface adds {summary.python_cost_us:.1f} us (median "
        "at the smallest size)."
    )
    yield ""
    yield "![Time by size, and how many times faster gc3 is](processes_performance.svg)"
    for ranks in sorted({p.ranks for p in points}):
        for collective in COLLECTIVES:
            group = [p for p in points if p.ranks == ranks and p.collective == collective]
            if group:
                yield from ("", f"### {collective}, {ranks} ranks", "", *table(group, list(results["libraries"])))


def table(group: list[Point], peers: list[str]) -> Iterable[str]:
    """Yields a table of points of one collective and number of ranks."""
    yield f"| Size | gc3 | gc3 from Python | {' | '.join(peers)} | best peer | times faster | bound | share |"
    yield "|" + "---:|" * (3 + len(peers)) + "---|" + "---:|" * 3
    for p in group:
        cells = [size(p.size), us(p.times[OURS].median_us), us(p.times[PYTHON].median_us)]
        for peer in peers:
            best = p.best(peer)
            cells.append("" if best is None else us(p.times[best].median_us))
        speedup = p.speedup() or 0
        faster = f"{speedup:.2f}" if speedup >= 1 else f"**{speedup:.2f}**"
        cells += [p.best() or "", faster, us(p.bound_us), f"{100 * p.share:.0f} %"]
        yield "| " + " | ".join(cells) + " |"


def size(value: int) -> str:
    """Returns a size the short way."""
    return f"{value >> 20} MiB" if value >= 1 << 20 else f"{value >> 10} KiB"


def us(value: float) -> str:
    """Returns microseconds with three digits or more."""
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 1000 else f"{value:.0f}"  # noqa: PLR2004


def page(text: str, results: Any) -> str:
    """Returns the page with its tables made anew."""
    head, _, rest = text.partition(BEGIN)
    return head + BEGIN + "\n" + "\n".join(tables(results)) + "\n\n" + END + rest.partition(END)[2]


def main() -> None:
    """Measures, merges and writes; says on standard error how far it is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a quarter of the sizes, printed only")
    parser.add_argument("--ranks", default="2,4,8")
    parser.add_argument("--collectives", default=",".join(COLLECTIVES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--page", action="store_true", help="measure nothing, make drawing and tables anew")
    given = parser.parse_args()
    if given.quick:
        what = ["--ranks", given.ranks, "--collectives", given.collectives, "--rounds", "1", "-f", "256"]
        raise SystemExit(
            subprocess.run([sys.executable, "-m", "gc3", "bench", "--vs", "all", *what], check=False).returncode
        )
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for ranks in [] if given.page else given.ranks.split(","):
        for collective in given.collectives.split(","):
            print(f"{collective}, {ranks} ranks", file=sys.stderr, flush=True)
            results = merged(results, measured(collective, int(ranks), given.rounds, []))
            write(results)
    plot.plot(record.points(results), str(DRAWING))
    PAGE.write_text(page(PAGE.read_text(), results))


if __name__ == "__main__":
    main()
