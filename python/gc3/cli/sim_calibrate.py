"""gc3 sim calibrate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from gc3 import collectives, errors
from gc3.cli import options, output, sizes, variants, what_if
from gc3.cli.calibrate_engine import calibrate_engine
from gc3.cli.command import Command, gathered
from gc3.cli.files import OutputFile
from gc3.cli.machine import machine_option, split_preset
from gc3.sim import platform, preset_file, settings
from gc3.sim.fit import calibrate as fitting
from gc3.sim.fit import cpu
from gc3.sim.nccl import Nccl
from gc3.sim.read import nccl_tests
from gc3.support.files import write_text
from gc3.support.words import counted
from gc3.topologies import load

if TYPE_CHECKING:
    from gc3.runtime.program import Program
    from gc3.topologies import Topology

_OF_ENGINE = ("engine", "target", "as_json", "help")  # options with --engine


@dataclass(frozen=True, slots=True)
class _Given:
    """The command line."""

    paths: Sequence[str]
    engine: str | None
    column: str | None
    machine: str | None
    programs: Sequence[str]
    names: str | None
    splits: int
    evaluations: int
    target: str | None
    as_json: bool


@click.command(
    "calibrate",
    cls=Command,
    short_help="Fit a machine's parameters to measurements.",
    examples=[
        "gc3 sim calibrate m.csv --column msccl_us -t ndv4 -p allpairs_allreduce:protocol=LL@1KiB-256KiB "
        "--fit launch,LL.rate,LL.hop -o mine.json",
        "gc3 sim calibrate 2nodes.log 4nodes.log -t ndv4 -p two_step_alltoall "
        "--fit nic.message,Simple.network_hop -o mine.json",
        "gc3 sim calibrate --engine threads",
    ],
)
@click.argument("paths", metavar="[FILE]...", nargs=-1)
@click.option(
    "--engine",
    type=click.Choice(cpu.ENGINES),
    help="Instead of a file: measure this engine on this machine, in at most a minute, and keep the preset for it.",
)
@click.option("--column", metavar="NAME", help="FILE is CSV, and this is its column with the times in microseconds.")
@machine_option("The machine that was measured; preset=NAME: the preset to start from.")
@click.option(
    "--program",
    "-p",
    "programs",
    metavar="PROGRAM@FROM-TO",
    multiple=True,
    help="The program measured at sizes FROM to TO; once for each. Without @...: at all sizes. Of logs also nccl or "
    "nccl:VERSION: NCCL's own choice.",
)
@click.option("--fit", "names", metavar="NAME,...", help="The parameters to fit: see docs/simulator.md.")
@click.option(
    "--splits", type=click.IntRange(min=1), default=5, show_default=True, help="Number of random halves to hold out."
)
@click.option(
    "--evaluations", type=click.IntRange(min=10), default=400, show_default=True, help="Number of iterations of a fit."
)
@click.option(
    "-o",
    "--output",
    "target",
    type=OutputFile(),
    metavar="FILE.json",
    help="Write the preset to this file, for preset=FILE.json after the name of a machine.",
)
@options.json_option
@gathered(_Given)
def calibrate(given: _Given) -> int:
    """Fit parameters of a machine to the times in a CSV file or in logs, and report the error on held-out data.

    With --column, FILE has a column "bytes" with S and columns of times in microseconds; lines with # are comments.
    For each of the splits, a random half of the rows is fitted and the other half predicted. The preset is then fitted
    to all rows.

    Without, files are logs of nccl-tests. Each says how many GPUs took part, which determines the nodes of the machine.
    If the logs are of several numbers of nodes, each number is predicted from a fit to the others.

    With --engine, programs are run on this machine; half of the algorithms are fitted, and the error is that on the
    others. What has been measured is kept when the minute is over, or on Ctrl-C, and the same command goes on. `gc3 sim
    -t cpu` uses the preset from then on (of threads), and `-t cpu:preset=here-threads` and `here-processes` do.
    """
    if given.engine is not None:
        _refuse_beside_engine(click.get_current_context())
        return calibrate_engine(given.engine, given.target, as_json=given.as_json)
    column, several = given.column, given.column is None
    if not given.paths or not given.machine or not given.programs or not given.names:
        raise click.UsageError("give FILE, --topology, --program and --fit, of CSV also --column; or give --engine")
    spec, preset = split_preset(given.machine)
    if column is None:
        cases = [case for log in given.paths for case in _logged(log, spec, preset, given.programs)]
        source = ", ".join(given.paths)
        topology = max((c.machine for c in cases if c.machine), key=lambda m: m.node_count, default=load(spec))
    else:
        if len(given.paths) != 1:
            raise click.UsageError("--column is of one FILE of CSV")
        topology = load(spec)
        cases = _chosen([_planned(text, topology) for text in given.programs], fitting.read_csv(given.paths[0], column))
        source = f"{given.paths[0]}, column {column}"
    with output.working("fitting"):
        fit = fitting.fit(
            platform(topology, preset),
            cases,
            given.names.split(","),
            source=source,
            splits=given.splits,
            evaluations=given.evaluations,
        )
    if given.target is not None:
        write_text(given.target, preset_file.dumps(fit.platform.parameters))
    held_out = fit.platform.parameters.evidence.held_out or 0.0
    times = fitting.predictions(fit.platform, cases)
    if given.as_json:
        output.emit(
            {
                "cases": len(cases),
                "error_before": fit.before,
                "error_in_sample": fit.in_sample,
                "error_held_out": held_out,
                "held_out": fit.held_out,
                "held_out_nodes": fit.left_out,
                "values": fit.values,
                "without_effect": list(fit.without_effect),
                "ranges": fit.ranges,
                "rows": [
                    {
                        "size": c.size,
                        "nodes": (c.machine or topology).node_count,
                        "measured_us": 1e6 * c.seconds,
                        "predicted_us": 1e6 * t,
                    }
                    for c, t in zip(cases, times, strict=True)
                ],
            }
        )
        return 0
    click.echo(f"# {'size':>10} {'measured':>10} {'predicted':>10}  (us)")
    for c, t in zip(cases, times, strict=True):
        where = f"  {counted((c.machine or topology).node_count, 'node')}" if several else ""
        click.echo(f"{c.size:>12} {1e6 * c.seconds:>10.2f} {1e6 * t:>10.2f}{where}")
    for name, value in fit.values.items():
        low, high = fit.ranges[name]
        best, least, most = (what_if.quantity(settings.Setting(name, x), digits=4) for x in (value, low, high))
        click.echo(f"# {name:<28} {best}  ({least} to {most} over the splits)")
    places = [f"{counted(nodes, 'node')}: " for nodes in fit.left_out] or [""] * len(fit.held_out)
    splits_text = ", ".join(f"{place}{100 * e:.1f}%" for place, e in zip(places, fit.held_out, strict=True))
    click.echo(
        f"# mean error: {100 * fit.before:.1f}% before the fit, {100 * fit.in_sample:.1f}% in sample, "
        f"{100 * held_out:.1f}% held out ({splits_text})"
    )
    if fit.without_effect:
        output.remark(
            f"{', '.join(fit.without_effect)}: no time in the data depends on it, so it is as before; measure calls "
            "that do, or leave it out of --fit"
        )
    if kept := [name for name in fit.values if settings.is_of_machine(name)]:
        output.remark(
            f"{', '.join(kept)}: of the machine, not of the preset; give --what-if, or change the topology's file"
        )
    return 0


def _refuse_beside_engine(context: click.Context) -> None:
    """Refuses whatever would have no effect beside --engine, however it was given."""
    given = [
        parameter.opts[0] if isinstance(parameter, click.Option) else "FILE"
        for parameter in context.command.params
        if parameter.name not in _OF_ENGINE
        and context.get_parameter_source(parameter.name or "") is not ParameterSource.DEFAULT
    ]
    if given:
        raise click.UsageError(f"--engine measures and fits by itself: leave out {', '.join(given)}")


def _logged(path: str, machine: str, preset: str | None, programs: Sequence[str]) -> list[fitting.Case]:
    """The cases of a log."""
    log = nccl_tests.read(path)
    if not log.ranks or not log.collective:
        raise errors.error(
            "BadMeasurements", f"'{path}' does not say which collective was measured or how many GPUs took part"
        )
    topology = _of_ranks(machine, log.ranks, path)
    found: list[fitting.Case] = []
    for text in programs:
        low, high, program = _planned(text, topology, preset, log.collective)
        own = collectives.get(log.collective).model(log.ranks, in_place=log.collective != "alltoall")
        model = own if isinstance(program, Nccl) else program.collective
        log.check(model)
        times = [(row.size, log.time_s(row.size, in_place=model.in_place)) for row in log.rows]
        found += _chosen([(low, high, program)], [(s, t) for s, t in times if t is not None and s > 0], topology)
    return found


def _of_ranks(machine: str, ranks: int, path: str) -> Topology:
    """The machine with so many ranks: as it is, or with as many nodes as they need."""
    topology = load(machine)
    each = topology.rank_count // topology.node_count
    if topology.rank_count == ranks:
        return topology
    if ranks % each or topology.node_count > 1:
        raise errors.error(
            "BadMeasurements",
            f"'{path}' is of {ranks} GPUs, and '{machine}' has {topology.rank_count}, {each} a node: give the name of "
            "a machine of any number of nodes, as ndv4",
        )
    return load(machine, N=ranks // each)


def _chosen(
    plan: Sequence[tuple[int, int, Program | Nccl]],
    rows: Sequence[tuple[int, float]],
    machine: Topology | None = None,
) -> list[fitting.Case]:
    return [
        fitting.Case(program, size, time, machine)
        for size, time in rows
        for low, high, program in plan
        if low <= size <= high
    ]


def _planned(
    text: str, topology: Topology, preset: str | None = None, collective: str = ""
) -> tuple[int, int, Program | Nccl]:
    """The sizes and the program of an option --program; NCCL only where the collective is known."""
    spec, at, limits = text.partition("@")
    low, high = 0, 1 << 62
    if at:
        first, dash, last = limits.partition("-")
        if not dash:
            raise click.UsageError(f"'{text}': write PROGRAM@FROM-TO, as in ring_allreduce@1KiB-64MiB")
        low, high = (sizes.Size().convert(x, None, None) for x in (first, last))
    name, _, version = spec.partition(":")
    if collective and name == "nccl":
        return low, high, Nccl(platform(topology, preset), collective, version or None)
    return low, high, variants.proven(options.Program().convert(spec, None, None), topology)
