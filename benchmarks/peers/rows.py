"""How good the rows of the default table are on each machine with results, beside the best peer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from gc3.cli.sizes import format_size
from gc3.comm.selection import Row, Table
from peers import record
from peers.points import Point

TOLERANCE = 1.25  # a row may take so many times as long as the best peer's program


def row_of(point: Point) -> Row:
    """Returns the row of the default table that serves the calls of a point."""
    in_place = point.collective == "broadcast"  # as calls are measured
    return Table.default().choose(point.collective, ranks=point.ranks, size=point.size, in_place=in_place).row


def measured(data: Any) -> dict[str, list[Point]]:
    """Returns the points of a machine by the row of the default table that serves them."""
    found: defaultdict[str, list[Point]] = defaultdict(list)
    for point in record.points(data):
        if point.speedup() is not None:
            found[row_of(point).source].append(point)
    return dict(found)


def table(machines: Sequence[Any], titles: Sequence[str]) -> Iterable[str]:
    """Yields the rows that serve measured points: on each machine the point where a row is slowest beside the peers."""
    known = [measured(data) for data in machines]
    yield f"| Row | Calls | Program | {' | '.join(titles)} |"
    yield "|---:|---|---|" + "---|" * len(titles)
    for row in Table.default().rows:
        if not any(row.source in points for points in known):
            continue
        calls = f"{row.collective}, {_range(row.ranks)} ranks, {_sizes(row.size)}"
        cells = [_least(points.get(row.source, ())) for points in known]
        yield f"| {row.source.rpartition(' ')[2]} | {calls} | {row.spec} | {' | '.join(cells)} |"


def _least(points: Sequence[Point]) -> str:
    slowest = min(points, key=lambda p: p.speedup() or 0, default=None)
    if slowest is None:
        return "not measured"
    times = slowest.speedup() or 0
    shown = f"{times:.2f} at {slowest.ranks} ranks, {format_size(slowest.size)}"
    return f"**{shown}**" if times * TOLERANCE < 1 else shown


def _range(ends: tuple[int, int | None]) -> str:
    first, last = ends
    return str(first) if first == last else f"{first} to {last}" if last else f"{first} and more"


def _sizes(ends: tuple[int, int | None]) -> str:
    first, end = ends
    if end is None:
        return f"{format_size(first)} and more" if first else "all sizes"
    return f"{format_size(first)} to {format_size(end)}" if first else f"below {format_size(end)}"
