"""A comparison, measured and printed point by point."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import click

from gc3.cli import output, sizes
from gc3.comm.selection import Table
from gc3.support.words import counted
from peers import Contest, Plan, Point, record
from peers.libraries import cores
from peers.points import OURS, PYTHON, ROTATED
from peers.summary import LARGE, SMALL, summarize, worst

_SHOWN = 10  # of the points that a peer wins
_FLOAT_BYTES = 4


def compare(plan: Plan, *, printing: bool, keep: Callable[[Any], None] = lambda _: None) -> dict[str, Any]:
    """Measures and returns the results as plain data; prints each point when it is measured, then the summary.

    `keep` gets a document of each point as soon as it is measured.
    """
    least = _FLOAT_BYTES * max(plan.ranks)
    if min(plan.sizes) < least:
        raise click.UsageError(f"{max(plan.ranks)} ranks need at least {least} B, one float32 each")
    if plan.table is not None:
        Table.read(plan.table)  # a mistake in it is reported here rather than by every rank
    points: list[Point] = []
    with output.working("looking for libraries"):
        contest = Contest(plan)
    total = len(plan.ranks) * len(plan.collectives) * len(plan.sizes)
    version = record.version()
    with contest, output.progress("timing", total, printing=printing) as begin:
        if printing:
            _print_head(contest)
        for measured in contest.points(begin):
            point = replace(measured, version=version)
            if printing:
                for line in _lines(point, first=not points or _group(points[-1]) != _group(point), plan=plan):
                    click.echo(line)
            points.append(point)
            keep(record.document(contest, [point]))
    if printing:
        _print_summary(points, contest)
    return record.document(contest, points)


def _print_head(contest: Contest) -> None:
    found = record.machine()
    click.echo(
        f"# {found['cpu']}, {counted(found['cores'], 'core')}, Linux {found['kernel']}, {contest.plan.conditions}"
    )
    for library in contest.libraries:
        ways = f", {len(library.settings)} settings, the best of which counts" if len(library.settings) > 1 else ""
        click.echo(f"# {library.name}: {library.version}{ways}")
    for missing in contest.missing:
        click.echo(f"# {missing.name} is not here: {missing.why}")
    click.echo(
        "# us: median over all iterations, each after a barrier, the slowest rank counting; faster: times faster than\n"
        "# the best peer; rotated: the same with buffers that no cache holds; bound: the same memory traffic\n"
        "# without waits; share: bound / gc3"
    )


def _group(point: Point) -> tuple[str, int]:
    return point.collective, point.ranks


def _lines(point: Point, *, first: bool, plan: Plan) -> Iterator[str]:
    if first:
        more = "" if point.ranks <= cores() else f" on {counted(cores(), 'core')}"
        yield f"\n# {point.collective} of float32, {point.ranks} ranks{more}"
        names = "".join(
            f"{name:>11}" for name in (OURS, "p99", "python", *plan.peers, "faster", "rotated", "bound", "share")
        )
        yield f"#{'size':>9}{names}  best peer"
    ours = point.times[OURS]
    python = point.times.get(PYTHON)
    cells = [_us(ours.median_us), _us(ours.p99_us or 0), _us(python.median_us) if python else "-"]
    for peer in plan.peers:
        best = point.best(peer)
        cells.append("-" if best is None else _us(point.times[best].median_us))
    for speedup in (point.speedup(), point.of(ROTATED).speedup() if point.rotated else None):
        cells.append("-" if speedup is None else f"{speedup:.2f}")
    cells += [_us(point.bound_us), f"{100 * point.share:.0f} %"]
    row = "".join(f"{cell:>11}" for cell in cells)
    yield f"{sizes.format_size(point.size):>10}{row}  {point.best() or ''}".rstrip()


def _us(time: float) -> str:
    return f"{time:.2f}" if time < 100 else f"{time:.1f}" if time < 10000 else f"{time:.0f}"  # noqa: PLR2004


def _print_summary(points: list[Point], contest: Contest) -> None:
    click.echo()
    for name, why in contest.failed.items():
        output.remark(f"{name} was left out: {why}")
    found = summarize(points)
    if found.speedup is not None:
        other = found.without_reducescatter
        more = "" if other is None else f"; without ReduceScatter {other:.2f}"
        click.echo(f"# geometric mean over {counted(found.points, 'point')}: {found.speedup:.2f} times faster{more}")
        kept = 100 * (found.p99_kept or 0)
        click.echo(f"#   p99 is no worse than that of the best peer at {kept:.0f} % of them")
        for peer, (mean, small, _) in found.from_python.items():
            if mean is not None:
                up_to = "" if small is None else f", {small:.2f} up to {sizes.format_size(SMALL)}"
                click.echo(f"#   from Python, {peer} alone: {mean:.2f}{up_to}")
        for groups, word in ((found.by_ranks, " ranks"), (found.by_collective, ""), (found.by_peer, "")):
            click.echo("#   " + ", ".join(f"{name}{word}: {mean:.2f}" for name, mean in groups.items()))
        click.echo(f"# a peer wins {found.lost} of them" + (", most clearly" if found.lost else ""))
        for point in worst(points, _SHOWN):
            where = f"{point.collective}, {point.ranks} ranks, {sizes.format_size(point.size)}"
            click.echo(f"#   {where}: {point.speedup():.2f} of {point.best()}")
    if found.share is not None and found.least_share is not None:
        least = f"the least {100 * found.least_share:.0f} %"
        click.echo(
            f"# memory bound from {sizes.format_size(LARGE)} on: {100 * found.share:.0f} % of gc3's time, {least}"
        )
    if found.python_cost_us is not None:
        click.echo(f"# the Python interface adds {found.python_cost_us:.1f} us at the smallest size")
