"""gc3 synth best."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from gc3 import collectives, datatypes, errors, synth
from gc3.cli import in_switch, options, output, sizes
from gc3.cli.command import Command, gathered
from gc3.cli.files import OutputFile
from gc3.cli.interrupt import INTERRUPTED
from gc3.cli.machine import machine_option
from gc3.cli.tables import write_table
from gc3.cli.variants import load_platform
from gc3.runtime.scratch import ScratchLimit
from gc3.sim import Platform, trust
from gc3.support import files
from gc3.support.words import counted
from gc3.tune import Best, Measured, simulated, table
from gc3.tune.bound import LinkBound, link_bound
from gc3.tune.space import left_out

_BOUNDING = 20.0  # seconds for the bound of a collective


@dataclass(frozen=True, slots=True)
class _Given:
    """The command line."""

    names: tuple[str, ...]
    machine: str
    min_size: int
    max_size: int
    factor: int
    file: str
    root: int
    max_threadblocks: int | None
    max_scratch: ScratchLimit | None
    protocols: tuple[str, ...]
    target: str | None
    time_limit: float | None
    seed: int
    as_json: bool


@click.command(
    "best",
    cls=Command,
    examples=[
        "gc3 synth best allgather --topology dgx1 -b 1KiB -e 1GiB -o table.json",
        "gc3 synth best allreduce,alltoall --topology ndv2:N=2 --time-limit 300 -o table.json --json",
        "gc3 synth best alltoall --topology dgx1 --max-scratch 32MiB -o small.json",
        "gc3 synth best allreduce --topology dgx1 --target msccl --max-threadblocks 32 -o for_msccl.json",
    ],
    short_help="Find the fastest programs for a machine, synthesized or the library's, as a selection table.",
)
@click.argument("names", metavar="COLLECTIVE,...", type=options.Names(tuple(collectives.BUILTIN)))
@machine_option(required=True)
@sizes.range_options()
@click.option("-o", "--output", "file", type=OutputFile(".json"), metavar="FILE.json", required=True,
              help="The table to write; its programs are written to the folder FILE.programs.")  # fmt: skip
@click.option("--root", type=click.IntRange(min=0), default=0, show_default=True, help="Of rooted collectives.")
@click.option("--max-threadblocks", type=click.IntRange(min=1), metavar="N",
              help="Threadblocks of a rank, if fewer than its GPU holds.")  # fmt: skip
@click.option("--max-scratch", type=sizes.Scratch(), metavar="BYTES[/S]",
              help="Scratch memory that a rank may use: 64MiB at all sizes; or for S bytes, 64MiB/256MiB or 1/4.  "
              "[default: no limit]")  # fmt: skip
@click.option("--protocols", type=options.Names(datatypes.PROTOCOLS), default=",".join(datatypes.FORMATS),
              show_default=True, metavar="NAME,...",
              help="Those that programs may have, as far as the machine has them, or all; Simple always. With Pull "
              "receivers load messages; with Copy, copy engines move them, straight to where they belong.")  # fmt: skip
@click.option("--target", type=click.Choice(["msccl", "azure", "rccl"]),
              help="Only programs that this runtime runs, for `gc3 export`.")  # fmt: skip
@click.option("--time-limit", type=options.Positive(), metavar="SECONDS",
              help="Seconds for the search; what was found is then proven and written.  [default: none]")  # fmt: skip
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of all random choices.")
@options.json_option
@gathered(_Given)
def best(given: _Given) -> int:
    """Find the fastest program of each COLLECTIVE for every size on a machine, as far as the simulator can tell.

    Compares the library's programs with synthesized ones, of few steps, pipelined over trees and composed of schedules
    inside nodes and between them; each with several channels, instances and protocols. The result is a selection table
    for `gc3.init(table=...)`, `gc3 tune --with` and `gc3 table`. Synthesized programs are proven, and are in files
    beside it. Ctrl-C writes what was found.
    """
    file, seed = given.file, given.seed
    if given.min_size == 0:
        raise click.UsageError("the smallest size is 0: give one above 0")
    wanted = sizes.in_range(given.min_size, given.max_size, given.factor)
    if files.is_device(file):
        raise click.UsageError(f"'{file}' is no file: programs are written to a folder beside the table")
    on = load_platform(given.machine)
    if on.topology.rank_count == 1:
        raise click.UsageError(f"{on.topology.name} has one rank, which needs no program")
    if given.root >= on.topology.rank_count:
        raise click.UsageError(f"{on.topology.name} has no rank {given.root}")
    searches = [
        Best(
            name,
            on,
            given.root if collectives.get(name).rooted else 0,
            threadblocks=given.max_threadblocks or 0,
            target=given.target,
            scratch=given.max_scratch,
            protocols=given.protocols,
        )
        for name in dict.fromkeys(given.names)
    ]
    deadline = math.inf if given.time_limit is None else time.monotonic() + given.time_limit
    interrupted = False
    rows: list[dict[str, Any]] = []
    bounds: dict[str, LinkBound | None] = {}
    try:
        with synth.Solvers(seed) as solvers, output.watching("searching") as tell:
            for number, search in enumerate(searches):
                share = (deadline - time.monotonic()) / (len(searches) - number)
                bounds[search.collective] = _bound(search, on, solvers, deadline, tell)
                search.run(solvers, seed, wanted, share, tell)
    except KeyboardInterrupt:
        interrupted = True
    with output.working("proving"):
        for search in searches:
            rows += search.rows(file, wanted, complete=all(size in search.searched for size in wanted))
    complete = not interrupted and all(size in search.searched for search in searches for size in wanted)
    written = _write(file, rows, complete=complete)
    if given.as_json:
        points = [
            _data(search, search.found[size], bounds.get(search.collective))
            for search in searches
            for size in wanted
            if search.has(size)
        ]
        output.emit({"machine": on.topology.name, "table": file, "finished": complete, "points": points, "rows": rows})
    else:
        for search in searches:
            _show(search, wanted, bounds.get(search.collective))
        if not complete:
            output.remark("the search was cut short: with more time it may find faster programs")
        click.echo(f"{counted(len(rows), 'row')} in {file}" if written else f"nothing was found; {file} is as it was")
    winners = [search.found[size] for search in searches for size in wanted if search.has(size)]
    in_switch.remark_on_copies(winner.best[0].protocol for winner in winners)
    chosen = [winner.best[0] for winner in winners if winner.best[0] == winner.default]
    in_switch.remark_on_choices(on, chosen, on.topology.rank_count)
    if left := left_out([search.collective for search in searches], on.topology):
        output.remark(left)
    return INTERRUPTED if interrupted else int(not rows)


def _write(file: str, rows: list[dict[str, Any]], *, complete: bool) -> bool:
    """Writes the table, unless an older one is better than the nothing that was found."""
    if not rows and not complete and Path(file).is_file():
        return False
    write_table(file, table(rows, engine="sim"))
    return True


def _show(search: Best, wanted: list[int], bound: LinkBound | None) -> None:
    if search.without:
        output.remark(f"{search.collective}: programs of the library alone: {search.without}")
    for size in wanted:
        if search.has(size):
            click.echo(_line(search, search.found[size], bound))
        elif size in search.searched:
            where = f"{search.collective}, {sizes.format_size(size)}"
            allowed = "--max-threadblocks or --max-scratch" if search.scratch else "--max-threadblocks"
            output.remark(
                f"{where}: no program has so few threadblocks as the machine or {allowed} allows, and at this size so "
                "few messages that it can be simulated"
            )
    points = [search.found[size] for size in wanted if search.has(size)]
    if points:
        worth = ((p.size, simulated.worth(search.platform, p, p.best[0])) for p in points)
        output.remark(f"{search.collective}: error {trust.summary(worth)}; why: --json")
    if bound is not None:
        click.echo(f"the bound of {search.collective}: {bound.proof}, at the rates of the links")


def _bound(search: Best, on: Platform, solvers: synth.Solvers, deadline: float, tell: output.Watch) -> LinkBound | None:
    """The bound of a collective; None if none was found in time."""
    if search.collective not in synth.NAMES or on.topology.rank_count == 1:
        return None
    tell(f"{search.collective}, the bound of the links")
    try:
        return link_bound(
            on, search.collective, search.root, solvers, min(deadline, time.monotonic() + _BOUNDING), search.protocols
        )
    except (synth.TimeUp, errors.UserError):
        return None


def _line(search: Best, found: Measured, bound: LinkBound | None) -> str:
    where = f"{search.collective}, {sizes.format_size(found.size)}"
    spec, took = found.best
    above = ""
    if bound is not None and bound.seconds_per_byte > 0:
        above = f", {1e-6 * took / (bound.seconds_per_byte * found.size):.4g} times the bound"
    needs = search.scratch_share(spec)
    above += f", scratch {needs} of S" if needs else ""
    if spec == found.default:
        return f"{where}: {took:.4g} us with the library's {spec}{above}"
    than = ""
    if found.default is not None and found.default_us is not None:
        told = simulated.compared(search.platform, found, found.default, str(found.default), found.default_us)
        than = f", {told}"
    return f"{where}: {took:.4g} us, {search.describe(spec)}{than}{above}"


def _data(search: Best, found: Measured, bound: LinkBound | None) -> dict[str, Any]:
    spec, took = found.best
    return {
        "collective": search.collective,
        "size": found.size,
        "time_us": took,
        "program": search.describe(spec),
        "synthesized": spec != found.default,
        "scratch_share": str(search.scratch_share(spec)),
        "expected": simulated.worth(search.platform, found, spec).data(),
        "library_us": found.default_us,
        "bound_us": None if bound is None else 1e6 * bound.seconds_per_byte * found.size,
        "bound": None if bound is None else bound.proof,
        "library": None if found.default is None else str(found.default),
    }
