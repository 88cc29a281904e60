"""gc3 table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from gc3 import collectives, errors
from gc3.cli import options, output, sizes
from gc3.cli.command import Command
from gc3.cli.files import OutputFolder
from gc3.comm import kept
from gc3.comm.export import entries
from gc3.comm.export import export as export_table
from gc3.comm.selection import ALWAYS, LIMITS, TRANSPORTS, Row, Table, read_rows
from gc3.support.words import counted

_PROVEN_RANKS = 16  # rows are compiled and proven up to this many ranks


@click.group("table")
def table() -> None:
    """Show, check or compile selection tables.

    A communicator (`gc3.init()`) uses the first row that fits a call. See docs/selection.md for the file format.
    """


@table.command(
    "show",
    cls=Command,
    long=True,
    short_help="Show the table, or which row serves a call.",
    examples=[
        "gc3 table show",
        "gc3 table show mine.json --collective allreduce --ranks 2,4",
        "gc3 table show --collective allreduce --ranks 4 --size 1MiB",
        "gc3 table show --collective allreduce --ranks 4 --nodes 2 --transport tcp --size 1MiB",
        "gc3 table show learned",
        "gc3 table show threads --collective allreduce --ranks 4 --size 1MiB",
    ],
)
@click.argument("table_name", metavar="[FILE|threads|processes|learned]", required=False)
@click.option("--collective", type=click.Choice(list(collectives.BUILTIN)), help="Only rows of this collective.")
@click.option("--ranks", type=options.Counts(), metavar="N,...", help="Only rows for these numbers of ranks.")
@click.option("--size", type=sizes.Size(), help="S of one call: show which row serves it, and why.")
@click.option("--in-place", is_flag=True, help="A call in place.")
@click.option(
    "--nodes", type=click.IntRange(1), help="A call of ranks on so many hosts, as many on each.  [default: 1]"
)
@click.option("--transport", type=click.Choice(TRANSPORTS), help="What carries messages between these hosts.")
@options.json_option
def show(
    table_name: str | None,
    collective: str | None,
    ranks: tuple[int, ...] | None,
    size: int | None,
    in_place: bool,
    nodes: int | None,
    transport: str | None,
    as_json: bool,
) -> None:
    """Show the default table, or FILE followed by the default one.

    threads or processes: the table in force on this machine for this engine, in which what `gc3 tune` has kept comes
    first; learned: what gc3.init(adapt=True) has learned on this machine.
    """
    if table_name is None:
        found = Table.default()
    elif table_name in options.ENGINES:
        found = kept.in_force(table_name)
    else:
        found = Table(kept.read_learned()) if table_name == "learned" else Table.read(table_name)
    rows = [row for row in found.rows if collective in (None, row.collective) and _is_for(row, ranks)]
    if size is not None:
        if collective is None or ranks is None or len(ranks) != 1:
            raise click.UsageError("a call is given by --collective, one number of --ranks and --size together")
        hosts = nodes or 1
        if ranks[0] % hosts:
            raise click.UsageError(f"{ranks[0]} ranks are not as many on each of {hosts} hosts")
        choice = found.choose(
            collective,
            ranks=ranks[0],
            size=size,
            in_place=in_place,
            nodes=hosts,
            ranks_per_node=ranks[0] // hosts,
            transport=transport or "",
        )
        if as_json:
            passed = [{"row": source, "why": why} for source, why in choice.passed_over]
            output.emit({"row": _data(choice.row), "passed_over": passed})
            return
        click.echo(_line(choice.row))
        for source, why in choice.passed_over:
            click.echo(f"  not {source}: {why}")
        return
    if nodes is not None or transport is not None:
        raise click.UsageError("--nodes and --transport are of a call: give its --size, too")
    if as_json:
        output.emit({"rows": [_data(row) for row in rows]})
        return
    for row in rows:
        click.echo(_line(row))
    if not rows:
        output.remark("no row fits" if found.rows else "gc3.init(adapt=True) has learned nothing on this machine yet")


def _is_for(row: Row, ranks: tuple[int, ...] | None) -> bool:
    first, last = row.limits.ranks
    return ranks is None or any(first <= n and (last is None or n <= last) for n in ranks)


@table.command(
    "check", cls=Command, short_help="Compile and prove every row of a table.", examples=["gc3 table check mine.json"]
)
@click.argument("file")
@options.json_option
def check(file: str, as_json: bool) -> int:
    """Check every row of FILE: whether it can be chosen, can be compiled, and implements its collective."""
    rows = read_rows(file)
    cores = [row.core() for row in rows]
    found: list[tuple[str, str]] = []
    with output.progress("proving", len(rows), printing=not as_json) as begin:
        for number, row in enumerate(rows):
            begin(row.source)
            hiding = [rows[n].source for n in range(number) if cores[n].covers(cores[number])]
            found += [(row.source, f"is never chosen: {source} serves all of its calls") for source in hiding]
            found += [(row.source, problem) for problem in _problems(row)]
    if as_json:
        output.emit({"rows": len(rows), "problems": [{"row": source, "problem": text} for source, text in found]})
    else:
        for source, text in found:
            click.echo(f"{source}: {text}")
        verdict = "good" if not found else counted(len(found), "problem")
        click.echo(f"{counted(len(rows), 'row')}: {verdict}")
    return 1 if found else 0


@table.command(
    "export",
    cls=Command,
    short_help="Compile a table for C++ programs.",
    examples=[
        "gc3 table export -o programs",
        "gc3 table export mine.json --ranks 2,4 -o programs",
    ],
)
@click.argument("file", required=False)
@click.option(
    "--ranks", type=options.Counts(), default=(1, 2, 3, 4, 5, 6, 7, 8), metavar="N,...", help="[default: 1 to 8]"
)
@click.option(
    "-o",
    "--output",
    "folder",
    type=OutputFolder(),
    required=True,
    metavar="FOLDER",
    help="The folder to write to; created if needed.",
)
@options.json_option
def export(file: str | None, ranks: tuple[int, ...], folder: str, as_json: bool) -> int:
    """Compile the default table, or FILE followed by the default one, for C++ programs.

    A program that uses cpp/gc3/gc3.h names FOLDER in its options. See docs/cpp.md.
    """
    found = Table.default() if file is None else Table.read(file)
    with output.progress("compiling", len(entries(found.rows, ranks)), printing=False) as begin:
        calls, files, left = export_table(found, ranks, Path(folder), begin)
    if as_json:
        output.emit({"folder": folder, "ranks": ranks, "calls": calls, "programs": files, "left_out": left})
    else:
        click.echo(f"{counted(files, 'program')} for {calls} kinds of calls in {folder}")
        if left:
            click.echo(f"left out: {counted(len(left), 'row')} for several hosts or custom collectives")
    return 0


def _problems(row: Row) -> Iterator[str]:
    for ranks, nodes in _placements(row):
        mode = row.limits.in_place
        for in_place in (False, True) if mode is None else (mode,):
            try:
                program = row.spec.compile(ranks, root=row.limits.root or 0, in_place=in_place, nodes=nodes)
            except errors.Gc3Error as problem:
                yield f"{counted(ranks, 'rank')}: {problem.message}"
                return
            does = program.collective
            if (does.name, does.condition) != (row.collective, row.condition):
                other = "another condition" if does.name == row.collective else does.name
                yield f"{row.spec} implements {other}, not that of the row: {row.collective}"
                return


def _some(of: tuple[int, int | None]) -> range:
    first, last = of
    return range(first, min(last or _PROVEN_RANKS, max(first, _PROVEN_RANKS)) + 1)


def _placements(row: Row) -> list[tuple[int, int]]:
    """Numbers of ranks and of hosts to prove a row for."""
    limits = row.limits
    if limits.ranks_per_node is None:
        return [(ranks, limits.nodes[0]) for ranks in _some(limits.ranks)]
    least, most = limits.ranks
    found = [(nodes * each, nodes) for nodes in _some(limits.nodes) for each in _some(limits.ranks_per_node)]
    fits = [(ranks, nodes) for ranks, nodes in found if least <= ranks <= max(_PROVEN_RANKS, least)]
    return [(ranks, nodes) for ranks, nodes in fits if most is None or ranks <= most]


def _data(row: Row) -> dict[str, object]:
    return {"source": row.source} | {key: getattr(row.limits, key) for key in LIMITS if key not in ALWAYS} | row.data()


def _line(row: Row) -> str:
    indent = " " * 6
    note = f"\n{output.fitted(f'    {row.note}', indent)}" if row.note else ""
    return f"{output.fitted(f'{row.source}: {row.core().describe()}', indent)}\n    {row.spec}{note}"
