"""gc3 show."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import click

from gc3.cli import one_sided, options, output, report, sizes, target, variants
from gc3.cli import source as source_view
from gc3.cli.command import Command, gathered
from gc3.cli.files import picture_option
from gc3.cli.machine import machine_option
from gc3.lang.build import STAGES
from gc3.report import flow, svg
from gc3.report.style import short_size
from gc3.runtime.program import Program
from gc3.sim import run_timeline
from gc3.sim.predict import Simulation, platform
from gc3.support.words import counted
from gc3.topologies import load

if TYPE_CHECKING:
    from gc3 import _core

_SIZE = 1 << 20
_SMALL = 1 << 10


@dataclass(frozen=True, slots=True)
class _Given:
    """The command line."""

    spec: options.Asked
    rank: int | None
    dump: str | None
    expect: bool
    source: bool
    machine: str | None
    size: int | None
    picture: str | None
    as_json: bool


@click.command(
    "show",
    cls=Command,
    long=True,
    examples=[
        "gc3 show h.gc3 --rank 0",
        "gc3 show ring_allreduce:R=3 --dump instructions",
        "gc3 show two_step_alltoall:N=2,G=2 --expect",
        "gc3 show ring_allreduce --source -t ndv4 --size 1MiB",
        "gc3 show two_step_alltoall:N=2,G=2 --picture p.svg",
        "gc3 show h.gc3 --json",
    ],
)
@options.program_argument()
@options.script_arguments
@click.option("--rank", "-r", type=click.IntRange(min=0), metavar="R", help="Only this rank's schedule.")
@click.option("--dump", type=click.Choice(STAGES), help="Show a stage of the compilation instead.")
@click.option("--expect", is_flag=True, help="Show the required value of every output chunk instead.")
@click.option("--source", is_flag=True, help="Show the lines that made the program instead; with -t, their times.")
@machine_option()
@picture_option("Draw its messages step by step instead.")
@click.option("--size", type=sizes.Size(), help="Size S of the call that --source times.  [default: 1MiB]")
@options.json_option
@gathered(_Given)
def show(given: _Given) -> int:
    """Show the program X, rank by rank.

    X is a compiled program (.gc3, or .xml for MSCCL runtimes), an algorithm of `gc3 list`, PATH.py:FUNCTION, or
    PATH.json in the form of SCCL-style synthesizers. It may also be an execution plan of MSCCL++ (PLAN.json; with
    pipelines PLAN.json:tiles=N), the text of another one-sided program, or an algorithm with memory=direct.
    """
    direct = one_sided.load(given.spec)
    if direct is not None:
        _show_one_sided(direct, given)
        return 0
    name, how, rank, dump = given.spec.name, given.spec.how, given.rank, given.dump
    if given.picture is not None:
        if rank is not None or dump is not None or given.expect or given.source or given.as_json:
            raise click.UsageError("--picture draws the whole program, and prints nothing")
        _draw(given.spec, given.picture)
        return 0
    if given.source:
        if rank is not None or dump is not None or given.expect:
            raise click.UsageError("--source shows the lines of the whole program")
        _show_source(given)
        return 0
    if (given.machine, given.size) != (None, None):
        raise click.UsageError("--topology and --size belong to --source")
    if dump is not None and not (dump == "ir" and target.is_program(name)):
        if target.is_program(name):
            raise click.UsageError(f"'{name}' is compiled: only its stage ir is available")
        if rank is not None or given.expect:
            raise click.UsageError("--dump shows a whole stage")
        text = target.dumped(name, dump, how)
        output.emit({"stage": dump, "text": text}) if given.as_json else click.echo(text, nl=not text.endswith("\n"))
        return 0
    if given.expect:
        program_name, model = target.demanded(name, how)
        _check_rank(rank, model.ranks)
        _show_expected(program_name, model, rank, as_json=given.as_json)
        return 0
    program = target.compiled(name, how)
    _check_rank(rank, program.ranks)
    if given.as_json:
        shown, own = (program.described, 0) if rank is None else program.of_rank(rank)
        whole = cast("Any", shown).as_dict()
        schedules: list[Any] = whole["ranks"] if rank is None else whole["ranks"][own : own + 1]
        lines = [{"file": file, "line": line, "caller": caller} for file, line, caller in whole.get("lines", ())]
        output.emit(
            {
                "program": program.info(),
                "use": report.use_data(program),
                "lines": lines,
                "ranks": [{"rank": r, **steps} for r, steps in enumerate(schedules, rank or 0)],
            }
        )
    else:
        click.echo(report.describe(program))
        click.echo(program.text if rank is None else _rank_text(program, rank), nl=False)
    return 0


def _show_one_sided(direct: one_sided.OneSided, given: _Given) -> None:
    useless = [f"--{key}" for key in ("picture", "source", "size") if getattr(given, key)]
    if useless or given.machine is not None or given.dump not in (None, "ir"):
        what = useless[0] if useless else "--topology" if given.machine is not None else f"--dump {given.dump}"
        raise click.UsageError(f"{what} does not apply to a one-sided program")
    program = direct.core
    _check_rank(given.rank, program.rank_count)
    if given.expect:
        _show_expected(program.name, program.collective, given.rank, as_json=given.as_json)
        return
    text = program.to_text() if given.rank is None else rank_text(program.to_text(), given.rank)
    if given.as_json:
        output.emit({"program": direct.info(), "text": text})
        return
    direct.remark()
    click.echo(direct.describe())
    click.echo(text, nl=False)


def _draw(spec: options.Asked, path: str) -> None:
    program = target.compiled(spec.name, spec.how)
    # On a machine without differences between ranks, a step begins when what it needs is there.
    free = {name: 0.0 for name, _, _ in program.core.applications()}
    simulation = Simulation(program, platform(load("fully_connected", R=program.ranks), "ideal"), costs=free)
    made = flow.flow(run_timeline.simulated(simulation, simulation.run(_SMALL, explain=True)))
    svg.save(flow.draw(made, head=report.describe(program).splitlines()[0].partition("; ")[0]), path)
    missing = [made.left_out] if made.left_out else []
    if made.rounds > flow.MOST_DRAWN:
        missing.append(f"steps after {flow.MOST_DRAWN} of {made.rounds}")
    if missing:
        output.remark(f"'{path}' does not show {', '.join(missing)}")
    click.echo(f"{path}: open it in a browser" if path.endswith(".svg") else path)


def _show_source(given: _Given) -> None:
    if given.machine is None and given.size is not None:
        raise click.UsageError("--size needs --topology")
    prediction = worth = None
    if given.machine is None:
        program = target.compiled(given.spec.name, given.spec.how)
    else:
        on = variants.load_platform(given.machine)
        program = variants.proven(variants.limited(given.spec, on), on.topology)
        simulation = Simulation(program, on)
        prediction, worth = simulation.run(given.size or _SIZE, explain=True), simulation.expected(given.size or _SIZE)
    rows = source_view.rows(program, prediction)
    if given.as_json:
        timed = {} if prediction is None else {"size": prediction.size, "time_us": prediction.time_us}
        timed |= {} if worth is None else {"expected": worth.data()}
        output.emit({"program": program.info(), **timed, "lines": rows})
        return
    click.echo(report.describe(program))
    if prediction is not None and worth is not None:
        assert prediction.explanation is not None  # noqa: S101  asked for
        launch = prediction.explanation.causes.get("launch", 0.0) / prediction.time_s
        click.echo(
            f"{short_size(prediction.size)} on {given.machine}: {prediction.time_us:.2f} us, "
            f"of which {launch:.1%} is the launch ({worth.short})"
        )
        click.echo(
            "time: share of the critical path; waits: of the threadblocks' time; a caller includes what it calls"
        )
    for line in source_view.text(rows, prediction):
        click.echo(line)


def _check_rank(rank: int | None, ranks: int) -> None:
    if rank is not None and rank >= ranks:
        raise click.UsageError(f"rank {rank} of {counted(ranks, 'rank')}, which start at 0")


def _rank_text(program: Program, rank: int) -> str:
    part, own = program.of_rank(rank)
    return rank_text(part.to_text(), own).replace(f"rank {own}", f"rank {rank}", 1)


def rank_text(text: str, rank: int) -> str:
    """Returns the part of a program's text form for one rank."""
    part = re.search(rf"^rank {rank}\b.*?(?=^rank |\Z)", text, re.MULTILINE | re.DOTALL)
    return part[0] if part else ""


def _show_expected(name: str, model: _core.Collective, rank: int | None, *, as_json: bool) -> None:
    rows = [
        (r, index, model.expected_value(r, index) if model.tensors else model.expected_terms(r, index))
        for r in (range(model.ranks) if rank is None else (rank,))
        for index in range(model.output_chunks(r))
    ]
    if as_json:
        expected = [{"rank": r, "index": index, "terms": terms} for r, index, terms in rows]
        output.emit({"program": name, "collective": model.name, "ranks": model.ranks, "expected": expected})
        return
    click.echo(f"{name}: {model.name} of {counted(model.ranks, 'rank')}")
    for r, index, terms in rows:
        parts = (term if isinstance(term, str) else f"rank {term[0]} in[{term[1]}]" for term in terms)
        inputs = " + ".join(parts) or "anything"
        click.echo(f"rank {r} out[{index}] = {inputs}")
