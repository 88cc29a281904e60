"""gc3 trace."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import click

from gc3.cli import engines, options, output, report, sizes, target, trials, variants
from gc3.cli.command import Command, gathered
from gc3.cli.files import OutputFile, picture_option
from gc3.cli.machine import machine_option
from gc3.report import lanes, svg
from gc3.runtime.checking import Case
from gc3.runtime.program import verify
from gc3.sim import Simulation, run_timeline, timeline
from gc3.sim.read import recorded
from gc3.sim.run_timeline import Run
from gc3.sim.trust import Expected
from gc3.support.files import write_bytes

_LIMIT = 5_000_000  # of steps; each takes some 500 bytes of the file


@dataclass(frozen=True, slots=True)
class _Given:
    """The command line."""

    spec: options.Asked
    machine: str | None
    size: int
    ranks: str | None
    most: int
    path: str | None
    picture: str | None
    dtype: str
    op: str
    engine: options.Engine | None
    as_json: bool


@click.command(
    "trace",
    cls=Command,
    examples=[
        "gc3 trace ring_allreduce --topology ndv4 --size 1MiB -o t.json",
        "gc3 trace hierarchical_allreduce --topology ndv4:N=2 --size 16MiB --only 0,8 -o t.json.gz",
        "gc3 trace ring_allreduce:R=4 --engine threads --size 1MiB -o t.json",
        "gc3 trace ring_allreduce -t ndv4 --size 64KiB --picture t.svg",
        "gc3 trace direct_alltoall:R=4,protocol=LL --engine processes -o t.json",
    ],
)
@options.program_argument(metavar="PROGRAM", unproven=True)
@options.script_arguments
@machine_option()
@click.option("--size", type=sizes.Size(), default="1MiB", show_default=True, help="S: the largest buffer of a rank.")
@click.option("--only", "ranks", metavar="R,...", help="Only these ranks.  [default: all]")
@click.option(
    "--most",
    type=click.IntRange(1, _LIMIT),
    default=run_timeline.MOST_SPANS,
    show_default=True,
    help="Largest number of steps to write, from the first; of a real run, to record.",
)
@click.option(
    "-o",
    "--output",
    "path",
    type=OutputFile(".json", ".json.gz"),
    metavar="FILE",
    help="The file to write: t.json, or compressed t.json.gz.",
)
@picture_option("Also draw the schedule.")
@options.dtype_option
@options.op_option
@options.engine_option(options.ENGINES, None, "Run instead of simulating: threads or processes, as in gc3 run.")
@options.json_option
@gathered(_Given)
def trace(given: _Given) -> int:
    """Write a timeline of PROGRAM for Perfetto (ui.perfetto.dev) or chrome://tracing.

    A rank is shown as a process, a threadblock as a thread, a step as a bar, a message as an arrow from its send to its
    receive, and the rates of the links as counters. The command also prints the parts of the critical path and of the
    threadblocks' waits.

    With --topology the program is simulated; PROGRAM is as in gc3 sim. With --engine it runs on this machine, after
    five runs to warm up; PROGRAM is as in gc3 run. If it names no settings, those are chosen and told, as in gc3 sim
    and gc3 bench; NAME:instances=1 is the plain form.
    """
    path, picture, ranks, most = given.path, given.picture, given.ranks, given.most
    if path is None and picture is None:
        raise click.UsageError("name a file to write: -o t.json, or --picture t.svg")
    dropped, worth = 0, None
    if given.engine is None and given.machine is not None:
        run, worth, told = _simulated(given, given.machine)
    elif given.engine is not None and given.machine is None:
        run, dropped, told = _recorded(given, given.engine)
    else:
        raise click.UsageError("give --topology to simulate, or --engine to run")
    chosen = _ranks(ranks, len(run.rank_names))
    with output.working("drawing"):
        made = run_timeline.timeline(run, ranks=chosen, most=most)
        if path is not None:
            write_bytes(path, timeline.to_bytes(made, compressed=path.endswith(".gz")))
        if picture is not None:
            drawn = lanes.lanes(run, chosen)
            scope = f" ({worth.short})" if worth else ""
            svg.save(lanes.draw(drawn, head=f"{made.title}: {svg.time_text(run.why.time_s)}{scope}"), picture)
            if drawn.left_out:
                output.remark(f"'{picture}' does not show {drawn.left_out}")
    if dropped:
        output.remark(
            f"{dropped} later steps were not recorded, and the time and its causes do not include them: raise --most"
        )
    if made.dropped:
        output.remark(f"{made.dropped} steps are left out: see --only and --most")
    _tell(given, run, made, dropped + made.dropped, worth, told)
    return 0


def _simulated(given: _Given, machine: str) -> tuple[Run, Expected, str]:
    on = variants.load_platform(machine)
    direct = variants.one_sided(given.spec, on)
    if direct is None:
        asked = variants.limited(given.spec, on)
        plain = variants.proven(asked, on.topology)
        _ranks(given.ranks, plain.ranks)  # before settings are searched, so that a mistake is told at once
        named, program, told = trials.settled(asked, plain, on, given.size)
        if given.ranks is not None:  # any of them, and not only those that stand for others
            program = program.whole
        simulation = Simulation(program, on)
        if simulation.alike:
            output.remark(f"one rank of each class is shown; {simulation.alike}; --only names others")
    else:
        direct = direct.for_size(given.spec, given.size, given.dtype)
        direct.prove(given.spec)
        direct.remark(given.size)
        simulation, named, told = Simulation(direct, on), given.spec, ""
    with output.working("simulating"):
        found = simulation.run(given.size, dtype=given.dtype, explain=True)
        run = run_timeline.simulated(simulation, found)
        run = replace(run, title=run.title.replace(simulation.program.name, named.text, 1)) if told else run
        return run, simulation.expected(given.size), told


def _recorded(given: _Given, engine: options.Engine) -> tuple[Run, int, str]:
    slots, asked = engine.options.slots, given.spec
    asked, told = trials.settled_here(asked, lambda: target.compiled(asked.name, asked.how), engine, given.size)
    program = target.compiled(asked.name, asked.how, slots=slots)
    if given.spec.how.prove:
        with output.working("proving"):
            verify(program, slots=slots)
    else:
        program.trust()
    count, rounding = sizes.fit(program.collective, given.size, given.dtype)
    if rounding is not None:
        output.remark(rounding)
    case = Case(program.collective, count, given.dtype, given.op)
    with output.working("making data"):
        inputs, outputs = case.inputs(), case.poisoned_outputs()
    settings = {"outputs": outputs, "count": count, "dtype": given.dtype, "op": given.op, "most": given.most}
    with output.working("running"):
        found = engines.record(engine, program, inputs, **settings)
    return recorded.run(found), found.dropped, told


def _tell(given: _Given, run: Run, made: timeline.Timeline, dropped: int, worth: Expected | None, told: str) -> None:
    path, picture, why = given.path, given.picture, run.why
    if given.as_json:
        found: dict[str, Any] = {
            "file": path,
            "picture": picture,
            "settings": told or None,
            "time_us": 1e6 * why.time_s,
            "expected": worth and worth.data(),
            "spans": len(made.spans),
            "messages": len(made.arrows),
            "counters": len(made.counters),
            "dropped": dropped,
            "critical_path_us": {cause: 1e6 * s for cause, s in why.causes.items()},
            "stalls_us": {cause: 1e6 * s for cause, s in why.stalls.items()},
            "work_us": 1e6 * why.work_s,
        }
        output.emit(found)
        return
    click.echo(f"{made.title}: {1e6 * why.time_s:.2f} us, {len(made.spans)} steps, {len(made.arrows)} messages")
    if told:
        click.echo(told)
    if worth is not None:
        click.echo(f"simulated: {worth.text}")
    click.echo(f"critical path: {report.causes(why.causes)}")
    click.echo(f"all threadblocks together: {1e6 * why.work_s:.2f} us busy; waiting: {report.causes(why.stalls)}")
    if path is not None:
        click.echo(f"{path}: open it in https://ui.perfetto.dev")
    if picture is not None:
        click.echo(f"{picture}: open it in a browser" if picture.endswith(".svg") else picture)


def _ranks(text: str | None, count: int) -> frozenset[int] | None:
    try:
        chosen = None if text is None else frozenset(int(part) for part in text.split(","))
    except ValueError:
        raise click.UsageError(f"'{text}' is not a list of ranks, as in 0,8") from None
    if chosen is not None and not all(0 <= r < count for r in chosen):
        raise click.UsageError(f"'{text}': ranks run from 0 to {count - 1}")
    return chosen
