"""gc3 trace."""

from __future__ import annotations

from typing import Any

import click

from gc3.cli import completion, engines, options, output, report, sizes, target, variants
from gc3.cli.command import Command
from gc3.cli.files import OutputFile, Picture
from gc3.cli.machine import load_machine, machine_option
from gc3.report import lanes, svg
from gc3.runtime.checking import Case
from gc3.runtime.program import EngineOptions, verify
from gc3.sim import Simulation, platform, recorded, run_timeline, timeline
from gc3.sim.run_timeline import Run
from gc3.support.files import write_bytes

_LIMIT = 5_000_000  # of steps; each takes some 500 bytes of the file


@click.command(
    "trace",
    cls=Command,
    examples=[
        "gc3 trace ring_allreduce --topology ndv4 --size 1MiB -o t.json",
        "gc3 trace hierarchical_allreduce --topology ndv4 --nodes 2 --size 16MiB --only 0,8 -o t.json.gz",
        "gc3 trace ring_allreduce -D R=4 --engine threads --size 1MiB -o t.json",
        "gc3 trace ring_allreduce -t ndv4 --size 64KiB --picture t.svg",
        "gc3 trace direct_alltoall -D R=4 --engine processes --protocol LL -o t.json",
    ],
)
@click.argument("spec", metavar="PROGRAM", shell_complete=completion.programs)
@machine_option(
    "Simulate on this machine: a name of `gc3 topo list`, or FILE.json.",
)
@click.option("--nodes", type=click.IntRange(min=1), metavar="N", help="Nodes of the machine: its parameter N.")
@click.option("--preset", metavar="NAME", help="Rates of ranks and protocols.  [default: the machine's own]")
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
@click.option("--picture", type=Picture(), metavar="FILE.svg|png", help="Also draw the schedule.")
@options.compile_options
@options.script_arguments
@options.dtype_option
@options.op_option
@click.option(
    "--engine",
    "engine_name",
    type=click.Choice(options.ENGINES),
    help="Run instead of simulating: ranks are threads of this process, or processes.",
)
@options.engine_settings
@options.no_verify_option
@options.json_option
def trace(
    spec: str,
    machine: str | None,
    nodes: int | None,
    preset: str | None,
    size: int,
    ranks: str | None,
    most: int,
    path: str | None,
    picture: str | None,
    dtype: str,
    op: str,
    engine: EngineOptions,
    engine_name: str | None,
    no_verify: bool,
    as_json: bool,
    how: options.CompileOptions,
) -> int:
    """Write a timeline of PROGRAM for Perfetto (ui.perfetto.dev) or chrome://tracing.

    A rank is shown as a process, a threadblock as a thread, a step as a bar, a message as an arrow from its send to its
    receive, and the rates of the links as counters. The command also prints the parts of the critical path and of the
    threadblocks' waits.

    With --topology the program is simulated; PROGRAM is as in gc3 sim. With --engine it runs on this machine, after
    five runs to warm up; PROGRAM is as in gc3 run.
    """
    if path is None and picture is None:
        raise click.UsageError("name a file to write: -o t.json, or --picture t.svg")
    if (machine is None) == (engine_name is None):
        raise click.UsageError("give --topology to simulate, or --engine to run")
    dropped = 0
    if engine_name is None:
        if engine != EngineOptions():
            raise click.UsageError("--slots, --slot-bytes, --workers, --timeout and --seed are for --engine")
        run = _simulated(spec, how, machine or "", nodes, preset, size, dtype, prove=not no_verify)
    else:
        if nodes is not None or preset is not None:
            raise click.UsageError("--nodes and --preset are for --topology")
        run, dropped = _recorded(spec, how, engine_name, engine, size, dtype, op, most, prove=not no_verify)
    chosen = None if ranks is None else _ranks(ranks, len(run.rank_names))
    with output.working("drawing"):
        made = run_timeline.timeline(run, ranks=chosen, most=most)
        if path is not None:
            write_bytes(path, timeline.to_bytes(made, compressed=path.endswith(".gz")))
        if picture is not None:
            drawn = lanes.lanes(run)
            svg.save(lanes.draw(drawn), picture)
            if drawn.left_out:
                output.remark(f"'{picture}' does not show {drawn.left_out}")
    if dropped:
        output.remark(
            f"{dropped} later steps were not recorded, and the time and its causes do not include them: raise --most"
        )
    if made.dropped:
        output.remark(f"{made.dropped} steps are left out: see --only and --most")
    _tell(path, picture, run, made, dropped + made.dropped, as_json=as_json)
    return 0


def _simulated(
    spec: str,
    how: options.CompileOptions,
    machine: str,
    nodes: int | None,
    preset: str | None,
    size: int,
    dtype: str,
    *,
    prove: bool,
) -> Run:
    topology = load_machine(machine, nodes)
    variants.check_taken(how, [spec])
    on = platform(topology, preset)
    simulation = Simulation(variants.proven(spec, variants.limited(how, on), topology, prove=prove), on)
    with output.working("simulating"):
        return run_timeline.simulated(simulation, simulation.run(size, dtype=dtype, explain=True))


def _recorded(
    spec: str,
    how: options.CompileOptions,
    engine_name: str,
    engine: EngineOptions,
    size: int,
    dtype: str,
    op: str,
    most: int,
    *,
    prove: bool,
) -> tuple[Run, int]:
    program = target.compiled(spec, how, slots=engine.slots)
    if prove:
        with output.working("proving"):
            verify(program, slots=engine.slots)
    else:
        program.trust()
    count, rounding = sizes.fit(program.collective, size, dtype)
    if rounding is not None:
        output.remark(rounding)
    case = Case(program.collective, count, dtype, op)
    with output.working("making data"):
        inputs, outputs = case.inputs(), case.poisoned_outputs()
    settings = {"outputs": outputs, "count": count, "dtype": dtype, "op": op, "most": most}
    with output.working("running"):
        found = engines.record(engine_name, engine, program, inputs, **settings)
    return recorded.run(found), found.dropped


def _tell(
    path: str | None, picture: str | None, run: Run, made: timeline.Timeline, dropped: int, *, as_json: bool
) -> None:
    why = run.why
    if as_json:
        found: dict[str, Any] = {
            "file": path,
            "picture": picture,
            "time_us": 1e6 * why.time_s,
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
    click.echo(f"critical path: {report.causes(why.causes)}")
    click.echo(f"all threadblocks together: {1e6 * why.work_s:.2f} us busy; waiting: {report.causes(why.stalls)}")
    if path is not None:
        click.echo(f"{path}: open it in https://ui.perfetto.dev")
    if picture is not None:
        click.echo(f"{picture}: open it in a browser" if picture.endswith(".svg") else picture)


def _ranks(text: str, count: int) -> frozenset[int]:
    try:
        chosen = frozenset(int(part) for part in text.split(","))
    except ValueError:
        raise click.UsageError(f"'{text}' is not a list of ranks, as in 0,8") from None
    if not chosen or not all(0 <= r < count for r in chosen):
        raise click.UsageError(f"'{text}': ranks run from 0 to {count - 1}")
    return chosen
