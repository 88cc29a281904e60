"""gc3 report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from gc3 import errors
from gc3.algorithms._one_rank import LOOPED
from gc3.cli import baselines as baselining
from gc3.cli import engines, options, output, report, sizes, target, variants
from gc3.cli import source as source_view
from gc3.cli.command import Command, gathered
from gc3.cli.files import OutputFile
from gc3.cli.machine import machine_option
from gc3.cli.trials import settled, trials
from gc3.report import flow, lanes, program_page
from gc3.report.advice import advice, bottleneck
from gc3.runtime import measure
from gc3.runtime.program import Program, verify
from gc3.sim import Simulation, run_timeline, trust
from gc3.sim.predict import UNDISTURBED
from gc3.sim.sweep import MOST_RECORDED
from gc3.support.files import write_text
from gc3.support.words import counted

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from gc3.runtime.program import Report
    from gc3.sim import Platform

_MOST_ROWS = 60
_SIZE = 1 << 20


@dataclass(frozen=True, slots=True)
class _Given:
    """The command line."""

    spec: options.Asked
    machine: str
    min_size: int
    max_size: int
    factor: int
    size: int | None
    baselines: Sequence[str]
    engine: options.Engine | None
    path: str
    as_json: bool


@click.command(
    "report",
    cls=Command,
    examples=[
        "gc3 report ring_allreduce -t ndv4 -o r.html",
        "gc3 report hierarchical_allreduce -t ndv4:N=2 -b 1KiB -e 1GiB --size 16MiB -o r.html",
        "gc3 report ring_allreduce:R=4 -t cpu --engine threads -b 1KiB -e 4MiB -o r.html",
    ],
)
@options.program_argument(metavar="PROGRAM")
@options.script_arguments
@machine_option(required=True)
@sizes.range_options()
@click.option("--size", type=sizes.Size(), help="The size whose run is drawn.  [default: 1MiB, within -b and -e]")
@baselining.option
@options.engine_option(options.ENGINES, None, "Also run the program on this machine: as threads or processes.")
@click.option("-o", "--output", "path", type=OutputFile(".html"), metavar="FILE.html", required=True, help="The page.")
@options.json_option
@gathered(_Given)
def report_command(given: _Given) -> int:
    """Write a page about PROGRAM on a machine, for a browser: one file that needs no network.

    It shows the times by size with baselines, what takes the time and what may help, the source with the time of each
    line, the messages step by step, the schedule, the load of every link, and what is proven. PROGRAM is as in gc3 sim.
    If it names no settings, those chosen for the drawn size are taken, and told; NAME:instances=1 is the plain form.
    Of large programs a part is shown, and the page says what is left out.
    """
    wanted = sizes.in_range(given.min_size, given.max_size, given.factor, most=_MOST_ROWS)
    on = variants.load_platform(given.machine)
    asked, program, told = _program(given.spec, on, given.size or min(max(_SIZE, wanted[0]), wanted[-1]))
    given = replace(given, spec=asked)
    with output.working("proving"):
        proof = verify(program)
    content = _content(given, program, proof, on, wanted, told)
    write_text(given.path, program_page.write(content))
    if given.as_json:
        output.emit({"file": given.path, "program": program.info(), **program_page.plain(content)})
        return 0
    click.echo(f"{content.title}: {content.prediction.time_us:.2f} us at {sizes.format_size(content.prediction.size)}")
    if told:
        click.echo(told)
    for sentence in (*program_page.verdict(content), *content.bottleneck, *content.advice):
        click.echo(sentence)
    click.echo(f"{given.path}: open it in a browser")
    return 0


def _program(spec: options.Asked, on: Platform, size: int) -> tuple[options.Asked, Program, str]:
    if target.is_script(spec.name):
        return spec, target.compiled(spec.name, spec.how), ""
    asked = variants.limited(spec, on)
    return settled(asked, variants.compiled(asked, on.topology), on, size)


def _content(
    given: _Given, program: Program, proof: Report, on: Platform, wanted: Sequence[int], told: str
) -> program_page.Content:
    size = given.size
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
    named = given.baselines
    if not named and on.topology.rank_count > LOOPED:
        remarks.append(
            f"NCCL's programs have the steps of all ranks: above {LOOPED} only --baseline nccl simulates them."
        )
    elif not named:
        named = _default(on, program)
    predicted = f"{program.name}, predicted"
    compared = [baselining.make(text, on, [program.described], wanted, UNDISTURBED) for text in named]
    with output.progress("simulating", len(wanted), printing=True) as begin:
        own: list[tuple[int, float]] = []
        worth: dict[str, dict[int, float]] = {predicted: {}, **{b.label: {} for b in compared}}
        others: dict[str, list[tuple[int, float]]] = {b.label: [] for b in compared}
        for each in wanted:
            begin(sizes.format_size(each))
            found = simulation.run(each)
            own.append((found.size, found.time_s))
            worth[predicted][found.size] = simulation.expected(each).error
            for b in compared:
                cell = b.cell(each)
                if cell is not None:
                    others[b.label].append((found.size, cell.time_s))
                    worth[b.label][found.size] = cell.error
        series: dict[str, Sequence[tuple[int, float]]] = {predicted: own, **others}
        prediction = simulation.run(drawn, explain=True)
    if given.engine is not None:
        series[f"{program.name}, measured here ({given.engine.name})"] = _measured(program, wanted, given.engine)
        remarks.append(f"Measured times are of this computer; predicted ones are of {on.topology.name}.")
    run = run_timeline.simulated(simulation, prediction)
    rows = source_view.rows(program, prediction)
    ranked = sorted(
        ((r["path_share"], f"{errors.shown(r['file']).rpartition('/')[2]}:{r['line']}") for r in rows), reverse=True
    )
    with output.working("trying variants"):
        tried = trials(given.spec, program, on, drawn)
    by_size = trust.told((each, simulation.expected(each)) for each in wanted)
    about = f"{report.describe(program).splitlines()[0]}." + (f" {told[0].upper()}{told[1:]}." if told else "")
    return program_page.Content(
        f"{given.spec.text if told else program.name} on {on.topology.title}",
        about,
        [
            ("times", f"simulated with {trust.preset(on)}"),
            *((f"errors, {span}", text) for span, _, text in (each.partition(": ") for each in by_size)),
            ("bands", "these errors of predicted times"),
            *((b.label, b.about) for b in compared),
        ],
        _proof(program, proof),
        prediction,
        on.topology,
        _listings(rows),
        lanes.lanes(run),
        flow.flow(run),
        series,
        {name: errors for name, errors in worth.items() if any(errors.values())},
        bottleneck(prediction, [(name, share) for share, name in ranked]),
        advice(prediction, tried, simulation.expected(drawn).error),
        remarks,
    )


def _default(on: Platform, program: Program) -> tuple[str, ...]:
    """NCCL, where its choice is known for the machine and the collective."""
    try:
        baselining.make("nccl", on, [program.described], [_SIZE], UNDISTURBED).cell(_SIZE)
    except errors.Gc3Error:
        return ()
    return ("nccl",)


def _measured(program: Program, wanted: Sequence[int], engine: options.Engine) -> list[tuple[int, float]]:
    found: list[tuple[int, float]] = []
    settings: Mapping[str, Any] = {"dtype": "float32", "op": "sum", "warmup": 3, "iterations": 10, "check": False}
    with (
        engines.timer(engine) as timer,
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
