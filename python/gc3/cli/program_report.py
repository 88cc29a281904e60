"""gc3 report."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import click

from gc3 import errors
from gc3.cli import baselines as baselining
from gc3.cli import completion, engines, options, output, report, sizes, target, variants
from gc3.cli import source as source_view
from gc3.cli.command import Command
from gc3.cli.files import OutputFile
from gc3.cli.machine import load_machine, machine_options
from gc3.cli.trials import trials
from gc3.report import flow, lanes, program_page
from gc3.report.advice import advice, bottleneck
from gc3.runtime import measure
from gc3.runtime.program import EngineOptions, Program, verify
from gc3.sim import Simulation, platform, run_timeline
from gc3.sim.predict import UNDISTURBED
from gc3.sim.sweep import MOST_RECORDED
from gc3.sim.trust import trust
from gc3.support.files import write_text
from gc3.support.words import counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from gc3.runtime.program import Report
    from gc3.sim import Platform

_MOST_ROWS = 60
_SIZE = 1 << 20


@click.command(
    "report",
    cls=Command,
    examples=[
        "gc3 report ring_allreduce -t ndv4 -o r.html",
        "gc3 report hierarchical_allreduce -t ndv4 --nodes 2 -b 1KiB -e 1GiB --size 16MiB -o r.html",
        "gc3 report ring_allreduce -D R=4 -t cpu --measured --engine threads -b 1KiB -e 4MiB -o r.html",
    ],
)
@click.argument("spec", metavar="PROGRAM", shell_complete=completion.programs)
@machine_options
@click.option("-b", "--min-size", type=sizes.Size(), default="1KiB", show_default=True, help="Smallest size.")
@click.option("-e", "--max-size", type=sizes.Size(), default="1GiB", show_default=True, help="Largest size.")
@click.option("-f", "--factor", type=click.IntRange(min=2), default=4, show_default=True, help="From size to size.")
@click.option("--size", type=sizes.Size(), help="The size whose run is drawn.  [default: 1MiB, within -b and -e]")
@baselining.option
@click.option("--measured", is_flag=True, help="Also run the program on this machine, with --engine.")
@click.option(
    "--engine",
    "engine_name",
    type=click.Choice(options.ENGINES),
    help="Where --measured runs: ranks are threads of this process (default), processes, or on CUDA devices.",
)
@click.option("-o", "--output", "path", type=OutputFile(".html"), metavar="FILE.html", required=True, help="The page.")
@options.compile_options
@options.script_arguments
@options.json_option
def report_command(
    spec: str,
    machine: str,
    nodes: int | None,
    preset: str | None,
    min_size: int,
    max_size: int,
    factor: int,
    size: int | None,
    baselines: Sequence[str],
    measured: bool,
    engine_name: str | None,
    path: str,
    as_json: bool,
    how: options.CompileOptions,
) -> None:
    """Write a page about PROGRAM on a machine, for a browser: one file that needs no network.

    It shows the times by size with baselines, what takes the time and what may help, the source with the time of each
    line, the messages step by step, the schedule, the load of every link, and what is proven. PROGRAM is as in gc3 sim.
    Of large programs a part is shown, and the page says what is left out.
    """
    if max_size < min_size:
        raise click.UsageError(f"the largest size, {max_size} B, is below the smallest, {min_size} B")
    if engine_name is not None and not measured:
        raise click.UsageError("--engine is for --measured")
    wanted = list(islice(measure.sizes(min_size, max_size, factor=factor), _MOST_ROWS + 1))
    if len(wanted) > _MOST_ROWS:
        raise click.UsageError(f"that makes more than {_MOST_ROWS} sizes: raise -f/--factor")
    on = platform(load_machine(machine, nodes), preset)
    program = _program(spec, how, on)
    with output.working("proving"):
        proof = verify(program)
    content = _content(
        spec, program, proof, on, how, wanted, size, baselines, engine_name or "threads" if measured else ""
    )
    write_text(path, program_page.write(content))
    if as_json:
        output.emit({"file": path, "program": program.info(), **program_page.plain(content)})
        return
    click.echo(f"{content.title}: {content.prediction.time_us:.2f} us at {sizes.format_size(content.prediction.size)}")
    for sentence in (*content.bottleneck, *content.advice):
        click.echo(sentence)
    click.echo(f"{path}: open it in a browser")


def _program(spec: str, how: options.CompileOptions, on: Platform) -> Program:
    if target.is_script(spec):
        return target.compiled(spec, how)
    variants.check_taken(how, [spec])
    return variants.compiled(spec, variants.limited(how, on), on.topology)


def _content(
    spec: str,
    program: Program,
    proof: Report,
    on: Platform,
    how: options.CompileOptions,
    wanted: Sequence[int],
    size: int | None,
    baselines: Sequence[str],
    engine_name: str,
) -> program_page.Content:
    simulation = Simulation(program, on)
    simulation.check_resident()
    remarks: list[str] = []
    drawn = size or min(max(_SIZE, wanted[0]), wanted[-1])
    while simulation.work(drawn) > MOST_RECORDED and drawn > 1:
        drawn //= 4
    if size is not None and drawn < size:
        remarks.append(
            f"A run of {sizes.format_size(size)} has too many steps to draw: {sizes.format_size(drawn)} is drawn."
        )
    series: dict[str, Sequence[tuple[int, float]]] = {program.name: []}
    named = baselines or _default(on, program)
    compared = [baselining.make(text, on, [program.core], wanted, UNDISTURBED, "") for text in named]
    with output.progress("simulating", len(wanted), printing=True) as begin:
        own: list[tuple[int, float]] = []
        others: dict[str, list[tuple[int, float]]] = {b.label: [] for b in compared}
        for each in wanted:
            begin(sizes.format_size(each))
            found = simulation.run(each)
            own.append((found.size, found.time_s))
            for b in compared:
                cell = b.cell(each)
                if cell is not None:
                    others[b.label].append((found.size, cell.time_s))
        series = {f"{program.name}, predicted": own, **others}
        prediction = simulation.run(drawn, explain=True)
    if engine_name:
        series[f"{program.name}, measured here ({engine_name})"] = _measured(program, wanted, engine_name)
        remarks.append(f"Measured times are of this computer; predicted ones are of {on.topology.name}.")
    run = run_timeline.simulated(simulation, prediction)
    rows = source_view.rows(program, prediction)
    ranked = sorted(
        ((r["path_share"], f"{errors.shown(r['file']).rpartition('/')[2]}:{r['line']}") for r in rows), reverse=True
    )
    with output.working("trying variants"):
        tried = trials(spec, program, on, how, drawn)
    about = f"{report.describe(program).splitlines()[0]}."
    nodes = f" of {on.topology.node_count} nodes" if on.topology.node_count > 1 else ""
    return program_page.Content(
        f"{program.name} on {on.topology.name}{nodes}",
        about,
        f"Times are simulated with preset {trust(on, [program.core], wanted).text}."
        + "".join(f" {b.label}: {b.about}." for b in compared),
        _proof(program, proof),
        prediction,
        on.topology,
        _listings(rows),
        lanes.lanes(run),
        flow.flow(run),
        series,
        bottleneck(prediction, [(name, share) for share, name in ranked]),
        advice(prediction, tried),
        remarks,
    )


def _default(on: Platform, program: Program) -> tuple[str, ...]:
    """NCCL, where its choice is known for the machine and the collective."""
    try:
        baselining.make("nccl", on, [program.core], [_SIZE], UNDISTURBED, "").cell(_SIZE)
    except errors.Gc3Error:
        return ()
    return ("nccl",)


def _measured(program: Program, wanted: Sequence[int], engine_name: str) -> list[tuple[int, float]]:
    found: list[tuple[int, float]] = []
    settings: Mapping[str, Any] = {"dtype": "float32", "op": "sum", "warmup": 3, "iterations": 10, "check": False}
    with (
        engines.timer(engine_name, EngineOptions()) as timer,
        output.progress("measuring", len(wanted), printing=True) as begin,
    ):
        for size in wanted:
            begin(sizes.format_size(size))
            count, _ = sizes.fit(program.collective, size, "float32")
            row = measure.measure(program, count, timer=timer, **settings)
            found.append((size, row.time_us * 1e-6))
    return found


def _proof(program: Program, proof: Report) -> list[str]:
    model = program.collective
    outputs = sum(model.output_chunks(r) for r in range(model.ranks))
    return [
        f"All {outputs} output chunks of {counted(model.ranks, 'rank')} hold what {model.name} requires, for any data.",
        f"Each of the {counted(proof.transfers, 'message')} of a tile has a send and a receive of the same length.",
        "Any two accesses to a chunk, one of which writes, are ordered: the result does not depend on timing.",
        f"With {counted(proof.slots, 'FIFO slot')} per connection or more, it cannot deadlock.",
        "A wrong program is accepted with a probability of at most 2^-125.",
    ]


def _listings(rows: Sequence[Mapping[str, Any]]) -> list[program_page.Listing]:
    by_file: dict[str, dict[int, tuple[int, float, float]]] = {}
    for row in rows:
        total = row["busy_us"] + row["waited_us"]
        counts = (row["steps"], row["path_share"], row["waited_us"] / total if total else 0.0)
        by_file.setdefault(row["file"], {})[row["line"]] = counts
    found: list[program_page.Listing] = []
    for file, marked in by_file.items():
        code = source_view.read(file)
        numbers = sorted(source_view.around(marked, len(code)) | marked.keys())
        shown = [
            (n, errors.shown(code[n - 1]) if n <= len(code) else "(the file cannot be read)", marked.get(n))
            for n in numbers
        ]
        found.append(program_page.Listing(errors.shown(file).rpartition("/")[2], shown))
    return found
