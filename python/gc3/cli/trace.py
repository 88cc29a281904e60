"""gc3 trace."""

from __future__ import annotations

import click

from gc3.cli import options, output, sizes, variants
from gc3.cli.command import Command
from gc3.cli.files import write_bytes
from gc3.cli.machine import load_machine
from gc3.sim import Simulation, platform, simulated_timeline, timeline


@click.command(
    "trace",
    cls=Command,
    examples=[
        "gc3 trace ring_allreduce --topology ndv4 --size 1MiB -o t.json",
        "gc3 trace hierarchical_allreduce --topology ndv4 --nodes 2 --size 16MiB --ranks 0,8 -o t.json.gz",
    ],
)
@click.argument("spec", metavar="PROGRAM")
@click.option(
    "--topology", "-t", "machine", metavar="SPEC", required=True, help="A name of `gc3 topo list`, or FILE.json."
)
@click.option("--nodes", type=click.IntRange(min=1), metavar="N", help="Nodes of the machine: its parameter N.")
@click.option("--preset", metavar="NAME", help="How fast ranks and protocols are.  [default: the machine's own]")
@click.option("--size", type=sizes.Size(), default="1MiB", show_default=True, help="S: the largest buffer of a rank.")
@click.option("--ranks", metavar="R,...", help="Only these ranks.  [default: all]")
@click.option(
    "--most",
    type=click.IntRange(min=1),
    default=simulated_timeline.MOST_SPANS,
    show_default=True,
    help="Most steps to write, the first ones.",
)
@click.option("-o", "--output", "path", metavar="FILE", required=True, help="t.json, or compressed t.json.gz.")
@options.compile_options
@options.json_option
def trace(
    spec: str,
    machine: str,
    nodes: int | None,
    preset: str | None,
    size: int,
    ranks: str | None,
    most: int,
    path: str,
    as_json: bool,
    how: options.CompileOptions,
) -> int:
    """Write what a simulated PROGRAM does as a timeline for Perfetto (ui.perfetto.dev) or chrome://tracing.

    A rank is a process, a threadblock a thread, a step a bar, a message an arrow from its send to its receive; the
    rates of the links are counters. PROGRAM is what gc3 sim takes.
    """
    topology = load_machine(machine, nodes)
    simulation = Simulation(variants.compiled(spec, how, topology), platform(topology, preset))
    chosen = None if ranks is None else _ranks(ranks, simulation.program.rank_count)
    with output.working("simulating"):
        prediction = simulation.run(size, explain=True)
        made = simulated_timeline.timeline(simulation, prediction, ranks=chosen, most=most)
    write_bytes(path, timeline.to_bytes(made, compressed=path.endswith(".gz")))
    if made.dropped:
        output.remark(f"{made.dropped} steps are left out: see --ranks and --most")
    if as_json:
        output.emit(
            {
                "file": path,
                "time_us": prediction.time_us,
                "spans": len(made.spans),
                "messages": len(made.arrows),
                "counters": len(made.counters),
                "dropped": made.dropped,
            }
        )
        return 0
    click.echo(f"{made.title}: {prediction.time_us:.2f} us, {len(made.spans)} steps, {len(made.arrows)} messages")
    click.echo(f"{path}: open it in https://ui.perfetto.dev")
    return 0


def _ranks(text: str, count: int) -> frozenset[int]:
    try:
        chosen = frozenset(int(part) for part in text.split(","))
    except ValueError:
        raise click.UsageError(f"'{text}' is not a list of ranks, as in 0,8") from None
    if not chosen or not all(0 <= r < count for r in chosen):
        raise click.UsageError(f"'{text}': ranks run from 0 to {count - 1}")
    return chosen
