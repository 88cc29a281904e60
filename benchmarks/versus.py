"""gc3 beside Open MPI, MPICH and Gloo: prints a comparison, or records it for docs/processes_performance.md.

python benchmarks/versus.py [--ranks N,...] [--collectives NAME,...] [--turns N] [--record]

With --record the points go into benchmarks/results/processes.json, where they replace earlier ones of the same kind, so
that a part can be done again; then the drawing and the tables of the page are made of all of them.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click
from peers import PEERS, Plan, Point, plot, record
from peers.compare import compare
from peers.contest import COLLECTIVES, OURS, PYTHON
from peers.summary import LARGE, summarize

from gc3.cli import files, options, output
from gc3.cli.main import Script
from gc3.cli.sizes import Size
from gc3.runtime import measure

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "processes.json"
DRAWING = ROOT / "docs" / "processes_performance.svg"
PAGE = ROOT / "docs" / "processes_performance.md"
BEGIN, END = "<!-- made by benchmarks/versus.py -->\n", "<!-- end -->\n"


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


def sizes_between(smallest: int, largest: int, factor: int) -> tuple[int, ...]:
    """Returns the sizes of a comparison, from the smallest on, each `factor` times the one before."""
    if largest < smallest:
        raise click.UsageError(f"the largest size, {largest} B, is below the smallest, {smallest} B")
    return tuple(measure.sizes(smallest, largest, factor=factor, step=0))


@click.command(
    "versus",
    cls=Script,
    examples=[
        "make bench-vs",
        "python benchmarks/versus.py",
        "python benchmarks/versus.py --vs openmpi,gloo --collectives allreduce --ranks 2 -e 1MiB --plot vs.png",
    ],
)
@click.option(
    "--vs",
    "libraries",
    type=options.Names(PEERS),
    default=PEERS,
    metavar="LIBRARY,...",
    help=f"The libraries to compare with: {', '.join(PEERS)}.  [default: all]",
)
@click.option(
    "--collectives",
    type=options.Names(COLLECTIVES),
    default=COLLECTIVES,
    metavar="NAME,...",
    help=f"Of {', '.join(COLLECTIVES)}.  [default: all]",
)
@click.option("--ranks", type=options.Counts(2), default=(2, 4, 8), metavar="N,...", help="[default: 2,4,8]")
@click.option("-b", "--min-size", type=Size(), default="1KiB", show_default=True, help="Smallest size.")
@click.option("-e", "--max-size", type=Size(), default="64MiB", show_default=True, help="Largest size.")
@click.option(
    "-f", "--factor", type=click.IntRange(min=2), default=4, show_default=True, help="Factor from size to size."
)
@click.option(
    "--turns", "rounds", type=click.IntRange(min=1), default=3, show_default=True, help="Turns of each at a point."
)
@click.option("--table", metavar="FILE", help="A selection table for gc3, before the default one.")
@click.option("--plot", "drawing", type=files.Drawing(), metavar="FILE.png|.svg|.pdf", help="Draw the results.")
@click.option("--record", "recorded", is_flag=True, help="Put the points into the results and the page of the docs.")
@click.option("--page", "remade", is_flag=True, help="Measure nothing: make the page and its drawing anew.")
@options.json_option
def versus(
    libraries: tuple[str, ...],
    collectives: tuple[str, ...],
    ranks: tuple[int, ...],
    min_size: int,
    max_size: int,
    factor: int,
    rounds: int,
    table: str | None,
    drawing: str | None,
    recorded: bool,
    remade: bool,
    as_json: bool,
) -> int:
    """Compare gc3 with Open MPI, MPICH and Gloo on this machine.

    What `gc3.init()` makes of each call (its selection table) stands side by side with the other libraries that are
    found, all measured in turn in one run, and with the machine's memory bound: see docs/processes_performance.md.
    """
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if not remade:
        plan = Plan(collectives, ranks, sizes_between(min_size, max_size, factor), libraries, rounds, table=table)
        if not recorded:
            found = compare(plan, printing=not as_json)
            if as_json:
                output.emit(found)
            if drawing is not None:
                plot.plot(record.points(found), drawing)
            return 0
        # A collective and a number of ranks at a time, so that what is interrupted keeps what is done.
        for some, name in itertools.product(ranks, collectives):
            results = merged(results, compare(replace(plan, ranks=(some,), collectives=(name,)), printing=not as_json))
            write(results)
    plot.plot(record.points(results), str(DRAWING))
    PAGE.write_text(page(PAGE.read_text(), results))
    return 0


if __name__ == "__main__":
    versus()
