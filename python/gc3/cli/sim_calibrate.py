"""gc3 sim calibrate."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from gc3.cli import engines, options, output, sizes, variants, what_if
from gc3.cli.command import Command
from gc3.cli.files import OutputFile
from gc3.cli.machine import machine_option
from gc3.runtime.program import EngineOptions
from gc3.sim import calibrate as fitting
from gc3.sim import cpu, platform, preset_file, settings
from gc3.support.files import write_text
from gc3.topologies import load

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from gc3.cli.options import CompileOptions
    from gc3.runtime.measure import Timer
    from gc3.runtime.program import Program
    from gc3.topologies import Topology


@click.command(
    "calibrate",
    cls=Command,
    short_help="Fit a machine's parameters to measurements.",
    examples=[
        "gc3 sim calibrate m.csv --column msccl_us -t ndv4 -p allpairs_allreduce:protocol=LL@1KiB-256KiB "
        "--fit launch,LL.rate,LL.hop -o mine.json",
        "gc3 sim calibrate --engine threads -o here.json",
    ],
)
@click.argument("path", metavar="FILE.csv", required=False)
@click.option(
    "--engine",
    type=click.Choice(cpu.ENGINES),
    help="Instead of a file: measure this engine on this machine, and test on programs outside the fit.",
)
@click.option("--column", metavar="NAME", help="The column with the times in microseconds.")
@machine_option(
    "The machine that was measured.",
)
@click.option("--preset", metavar="NAME", help="The preset to start from.  [default: the machine's own]")
@click.option(
    "--program",
    "-p",
    "programs",
    metavar="PROGRAM@FROM-TO",
    multiple=True,
    help="The program measured at sizes FROM to TO; once for each. Without @...: at all sizes.",
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
    help="Write the preset to this file, for --preset FILE.json.",
)
@options.compile_options
@options.json_option
def calibrate(
    path: str | None,
    engine: str | None,
    column: str | None,
    machine: str | None,
    preset: str | None,
    programs: Sequence[str],
    names: str | None,
    splits: int,
    evaluations: int,
    target: str | None,
    as_json: bool,
    how: CompileOptions,
) -> int:
    """Fit parameters of a machine to the times in FILE.csv, and report the error on held-out data.

    The file has a column "bytes" with S and columns of times in microseconds; lines with # are comments. For each of
    the splits, a random half of the rows is fitted and the other half predicted. The preset is then fitted to all rows.
    """
    if engine is not None:
        if path or column or machine or programs or names:
            raise click.UsageError("--engine measures by itself: leave out FILE.csv and its options")
        return _calibrate_engine(engine, evaluations, target, as_json=as_json)
    if not path or not column or not machine or not programs or not names:
        raise click.UsageError("FILE.csv needs --column, --topology, --program and --fit; or give --engine")
    topology = load(machine)
    plan = [_planned(text, how, topology) for text in programs]
    rows = fitting.read_csv(path, column)
    cases = [
        fitting.Case(program, size, time) for size, time in rows for low, high, program in plan if low <= size <= high
    ]
    with output.working("fitting"):
        fit = fitting.fit(
            platform(topology, preset),
            cases,
            names.split(","),
            source=f"{path}, column {column}",
            splits=splits,
            evaluations=evaluations,
        )
    if target is not None:
        write_text(target, preset_file.dumps(fit.platform.parameters))
    held_out = fit.platform.parameters.evidence.held_out or 0.0
    times = fitting.predictions(fit.platform, cases)
    if as_json:
        output.emit(
            {
                "cases": len(cases),
                "error_before": fit.before,
                "error_in_sample": fit.in_sample,
                "error_held_out": held_out,
                "held_out": fit.held_out,
                "values": fit.values,
                "ranges": fit.ranges,
                "rows": [
                    {"size": c.size, "measured_us": 1e6 * c.seconds, "predicted_us": 1e6 * t}
                    for c, t in zip(cases, times, strict=True)
                ],
            }
        )
        return 0
    click.echo(f"# {'size':>10} {'measured':>10} {'predicted':>10}  (us)")
    for c, t in zip(cases, times, strict=True):
        click.echo(f"{c.size:>12} {1e6 * c.seconds:>10.2f} {1e6 * t:>10.2f}")
    for name, value in fit.values.items():
        low, high = fit.ranges[name]
        best, least, most = (what_if.quantity(settings.Setting(name, x), digits=4) for x in (value, low, high))
        click.echo(f"# {name:<28} {best}  ({least} to {most} over the splits)")
    click.echo(
        f"# mean error: {100 * fit.before:.1f}% before the fit, {100 * fit.in_sample:.1f}% in sample, "
        f"{100 * held_out:.1f}% held out ({', '.join(f'{100 * e:.1f}' for e in fit.held_out)})"
    )
    return 0


def _calibrate_engine(engine: str, evaluations: int, target: str | None, *, as_json: bool) -> int:
    cores = len(os.sched_getaffinity(0))

    def timing() -> AbstractContextManager[Timer]:
        return engines.timer(engine, EngineOptions())

    runs = cpu.TURNS * (len(cpu.TRAINING) + len(cpu.UNSEEN))
    with output.progress("measuring", runs, printing=False) as begin:
        measured = [cpu.measured(samples, timing, begin=begin) for samples in (cpu.TRAINING, cpu.UNSEEN)]
    with output.working("fitting"):
        source = f"measured on {cores} cores of this machine by gc3 sim calibrate"
        fit = cpu.fit(cpu.start(engine, cores), *measured, source=source, evaluations=evaluations)
    if target is not None:
        write_text(target, preset_file.dumps(fit.parameters))
    evidence = fit.parameters.evidence
    if as_json:
        output.emit(
            {
                "engine": engine,
                "cores": cores,
                "cases": len(fit.trained),
                "unseen_cases": len(fit.unseen),
                "error_in_sample": evidence.in_sample,
                "error_held_out": evidence.held_out,
                "median_error_unseen": fit.median_error,
            }
        )
    else:
        click.echo(
            f"{engine} on {cores} cores: fitted to {len(fit.trained)} measurements; median error on {len(fit.unseen)} "
            f"of programs not fitted: {100 * fit.median_error:.1f}%"
        )
    return 0


def _planned(text: str, how: CompileOptions, topology: Topology) -> tuple[int, int, Program]:
    spec, at, limits = text.partition("@")
    low, high = 0, 1 << 62
    if at:
        first, dash, last = limits.partition("-")
        if not dash:
            raise click.UsageError(f"'{text}': write PROGRAM@FROM-TO, as in ring_allreduce@1KiB-64MiB")
        low, high = (sizes.Size().convert(x, None, None) for x in (first, last))
    return low, high, variants.proven(spec, how, topology)
