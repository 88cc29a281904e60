"""gc3 sim."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from gc3 import datatypes
from gc3.cli import baselines as baselining
from gc3.cli import in_switch, options, output, report, sizes, trials, variants, what_if
from gc3.cli import sim_report as drawing
from gc3.cli.command import Command, gathered
from gc3.cli.files import OutputFile
from gc3.cli.machine import machine_option
from gc3.cli.one_sided import OneSided
from gc3.cli.sim_calibrate import calibrate
from gc3.cli.sim_convert import convert
from gc3.cli.sim_group import Group
from gc3.cli.sim_step import sim_step
from gc3.cli.sim_together import together
from gc3.report.advice import advised
from gc3.runtime.program import Program
from gc3.sim import Simulation, trust, v_counts
from gc3.sim.predict import SHARING
from gc3.sim.sensitivity import Sensitivity, sensitivities
from gc3.sim.sweep import Column, Row, alpha_beta_column, column, lead, ranges, sweep, to_csv
from gc3.support.files import write_text
from gc3.support.words import counted

if TYPE_CHECKING:
    from gc3.sim import Platform
    from gc3.sim.predict import Compiled

_MODES = ("slot", "explain", "alphabeta", "nccl")
_STEPS_SHOWN = 12
_INDENT = " " * 14  # of what follows a row's numbers on a narrow terminal


@click.group("sim", cls=Group, short_help="Predict and explain times on a machine; calibrate the predictions.")
def sim() -> None:
    """Predict the times of programs on a machine: gc3 sim PROGRAM... --topology NAME."""


@dataclass(frozen=True, slots=True)
class _Given:
    """The command line of gc3 sim."""

    specs: Sequence[options.Asked]
    machine: str
    min_size: int
    max_size: int
    factor: int
    mode: str
    sharing: str
    counts_path: str | None
    sensitivity: bool
    changes: what_if.Changes
    baselines: Sequence[str]
    nccl_log: str | None
    dtype: str
    csv_path: str | None
    pictures: Sequence[str]
    as_json: bool


@dataclass(frozen=True, slots=True, eq=False)
class _Use:
    """A program and the sizes at which a column has it; its name has the settings that were chosen."""

    name: str
    program: Compiled
    sizes: list[int]


@sim.command(
    "predict",
    cls=Command,
    short_help="Predict times, and show what bounds them.",
    examples=[
        "gc3 sim ring_allreduce allpairs_allreduce --topology ndv4 -b 1KiB -e 1GiB",
        "gc3 sim ring_allreduce:channels=4,instances=8,protocol=LL128 --topology ndv4 -b 1MiB -e 64MiB -f 2",
        "gc3 sim two_step_alltoall direct_alltoall --topology ndv4:N=2 -b 1KiB -e 1GiB --json",
        "gc3 sim h.gc3 --topology dgx1 --mode alphabeta",
        "gc3 sim ring_allreduce --topology ndv5:N=2 -b 1KiB -e 1GiB --mode nccl",
        "gc3 sim hierarchical_allreduce --topology ndv4:N=2 -b 16MiB -e 16MiB --mode explain",
        "gc3 sim allpairs_allreduce:protocol=LL --topology ndv4 -b 1KiB -e 1MiB --baseline nccl --picture speedup.png",
        "gc3 sim two_step_alltoall --topology ndv4:N=2 -b 64MiB -e 64MiB --what-if nic.bandwidth=50GB/s",
        "gc3 sim two_step_alltoall direct_alltoall --topology ndv4:N=2 --counts examples/moe.json",
        "gc3 sim ring_allreduce --topology ndv4 -b 64KiB -e 64MiB -f 32 --sensitivity",
        "gc3 sim ring_allreduce --topology ndv4 -b 1MiB -e 1MiB --what-if straggler=3:1.5 --what-if straggler=5:20us",
        "gc3 sim ring_allreduce -t mi300x:without=5 -b 1MiB -e 1MiB --what-if degrade=0-1:0.5 --what-if jitter=5us",
        "gc3 sim ring_allreduce -t ndv4 -b 64MiB -e 64MiB --what-if background=0-1:20GB/s",
        "gc3 sim ring_allreduce:instances=24 -t ndv4 -b 64MiB -e 64MiB --what-if compute=0.5",
        "gc3 sim direct_allreduce:memory=direct,instances=8 direct_allreduce -t ndv5 -b 1KiB -e 16MiB",
    ],
)
@options.program_argument("specs", "PROGRAM", many=True, unproven=True)
@machine_option(required=True)
@sizes.range_options()
@click.option(
    "--mode",
    type=click.Choice(_MODES),
    default="slot",
    show_default=True,
    help="slot: simulate slice by slice; explain: also show the critical path; alphabeta: count steps and rounds; "
    "nccl: show NCCL's graphs, channels and choices for this collective, as it logs them.",
)
@click.option(
    "--sharing",
    type=click.Choice(SHARING),
    default="serial",
    show_default=True,
    help="How transfers share a link: serial: one slice after the other; max-min: all at once.",
)
@click.option(
    "--counts",
    "counts_path",
    type=click.Path(),
    metavar="FILE",
    help="Blocks of different lengths: a JSON list of elements; of an all-to-all a list per rank of what it sends to "
    "each, else the length of each rank's block. One row, for these counts; with -b or -e all counts are scaled.",
)
@click.option("--sensitivity", is_flag=True, help="Show how much the time of each program depends on each parameter.")
@what_if.option
@baselining.option
@baselining.log_option
@options.dtype_option
@click.option("--csv", "csv_path", type=OutputFile(), metavar="FILE", help="Write the table to this file as CSV.")
@drawing.option
@options.json_option
@gathered(_Given)
def predict(given: _Given) -> int:
    """Predict the time of each PROGRAM on a machine over a range of sizes, and what bounds it.

    A PROGRAM is an algorithm of `gc3 list`, PATH.py:FUNCTION, PATH.json or a compiled program (.gc3, .xml); or a
    one-sided one: an algorithm with memory=direct, its text form, or an execution plan of MSCCL++ (.json). An algorithm
    may be followed by :key=value,... with its parameters, protocol and instances. R, N and G are those of the
    machine unless given. If it names none of protocol, instances, channels, chunks and parallel, the fastest of 24
    settings, rails and order among them, is taken for each size, and told; NAME:instances=1 is the plain form.

    size is the largest buffer of a rank in bytes; algbw = size / time, busbw = algbw times the factor of the
    collective, GB is 10^9 bytes. bound is the time of the busiest link or NIC for its share of the data: no schedule of
    the same transfers is faster. cause is the largest part of the critical path, * marks the fastest program, x is the
    time of the first baseline divided by that of the program; ~ where that is less than both times may be wrong by. The
    line before the table tells that error, which 9 of 10 stay within: of calls to which parameters were fitted (in
    sample), of others that were measured (held out), or of the nearest ones that were. --mode explain tells which.
    """
    on, changes = given.changes.on(given.machine)
    mode, dtype, as_json, disturbance = given.mode, given.dtype, given.as_json, changes.disturbance
    disturbed = bool(disturbance.delay_s or disturbance.slowdown)
    _check(given, disturbed=disturbed)
    counts = _counts(given)
    wanted = sizes.in_range(given.min_size, given.max_size, given.factor)
    known = variants.labels([spec.text for spec in given.specs])
    asked = {known[spec.text]: spec for spec in given.specs}
    compiled = _compiled(asked, on, mode, counts)
    described = [program.described for program in compiled.values()]
    if mode == "nccl":
        return baselining.show(on, described, wanted, given.baselines, given.nccl_log, as_json=as_json)
    wanted = _size_of(counts, compiled, dtype) or wanted
    beyond = changes.beyond()
    compared = [  # before settings are searched, so that a mistake is told at once
        baselining.make(text, on, described, wanted, disturbance, beyond, given.nccl_log) for text in given.baselines
    ]
    uses = {label: _uses(label, asked[label], program, on, wanted, given) for label, program in compiled.items()}
    every = [use for each in uses.values() for use in each]
    changes.check_effect({use.program.described.protocol for use in every})
    how: dict[str, Any] = {"dtype": dtype, "sharing": given.sharing, "disturbance": disturbance}
    own: list[Column] = [
        alpha_beta_column(label, Simulation(each[0].program, on, counts))
        if mode == "alphabeta"
        else _column(label, each, on, counts, {**how, "beyond": beyond})
        for label, each in uses.items()
    ]
    programs = [use.program.described for use in every]
    in_switch.remark_on_copies(program.protocol for program in programs)
    in_switch.remark(on, programs)
    timed = [(use, Simulation(use.program, on, counts)) for use in every] if mode != "alphabeta" else []
    worth = [(size, simulation.expected(size, *beyond)) for use, simulation in timed for size in use.sizes]
    remarks = [*changes.told(), *_choices(asked, uses)]
    if not as_json:
        _print_head(
            on, mode, compared, worth, [*changes.told(), *(f"{use.name}: {s.alike}" for use, s in timed if s.alike)]
        )
    rows = _simulated([*own, *(b.cell for b in compared)], wanted, compared, as_json=as_json)
    if given.csv_path is not None:
        write_text(given.csv_path, to_csv(rows))
    if given.pictures:
        drawing.draw(drawing.described(on, mode, rows, compared, programs, remarks), given.pictures)
    reasons: dict[str, dict[str, Any]] = {}
    for label, each in uses.items() if mode == "explain" else ():
        use = next(use for use in each if wanted[-1] in use.sizes)
        reasons[label] = reason = {"program": use.name} | _explain(Simulation(use.program, on, counts), wanted[-1], how)
        # Changes are tried in calls of equal blocks on ranks that are alike; of settings that were chosen they were.
        plain = counts is None and not disturbed and given.sharing == SHARING[0] and use.name == label
        reason |= _advice(asked[label], use.program, on, reason) if plain and isinstance(use.program, Program) else {}
    slopes: dict[_Use, list[Sensitivity]] = {}
    for use in every if given.sensitivity else ():
        with output.working(f"varying parameters for {use.name}"):
            slopes[use] = list(sensitivities(use.program, on, use.sizes, **how))
    if as_json:
        data = _data(on, mode, rows, reasons, compared) | changes.data()
        data["sensitivities"] = what_if.sensitivity_data((use.name, use.sizes, slopes[use]) for use in slopes)
        output.emit(data)
        return 0
    _print_winners(rows)
    output.comment(*_choices(asked, uses), *(_sources(on, worth, compared) if mode == "explain" else ()))
    for reason in reasons.values():
        _print_reason(reason)
    for use, found in slopes.items():
        what_if.print_sensitivities(use.name, use.sizes, found)
    _print_next(rows[-1], asked, on)
    return 0


def _check(given: _Given, *, disturbed: bool) -> None:
    """Refuses what a mode has not."""
    if given.mode == "alphabeta" and (disturbed or given.sensitivity):
        raise click.UsageError(
            "--mode alphabeta has no stragglers and only the topology's parameters: choose another mode"
        )
    of_nccl = [text.lower() == "nccl" or text.lower().startswith("nccl:") for text in given.baselines]
    if given.mode == "nccl" and not all(of_nccl):
        raise click.UsageError("--mode nccl has no baseline but nccl:VERSION")
    if given.nccl_log is not None and given.mode != "nccl" and not any(of_nccl):
        raise click.UsageError("--nccl-log goes with --baseline nccl or --mode nccl")


def _simulated(
    columns: Sequence[Column], wanted: Sequence[int], compared: Sequence[baselining.Baseline], *, as_json: bool
) -> list[Row]:
    """Simulates all sizes, and prints each row as soon as it is known."""
    rows: list[Row] = []
    baseline = compared[0].label if compared else ""
    with output.progress("simulating", len(wanted), printing=not as_json) as begin:
        for row in sweep(columns, wanted, baseline, begin=lambda size: begin(sizes.format_size(size))):
            rows.append(row)
            if not as_json:
                _print_row(row)
    return rows


def _counts(given: _Given) -> list[int] | None:
    """The counts of a file."""
    if given.counts_path is None:
        return None
    if given.mode == "alphabeta" or given.sensitivity or given.baselines:
        raise click.UsageError("--counts goes with neither --mode alphabeta, nor --sensitivity, nor --baseline")
    return v_counts.read(given.counts_path)


def _size_of(counts: list[int] | None, programs: dict[str, Program | OneSided], dtype: str) -> list[int]:
    """The size that counts have by themselves; none if the command line names sizes."""
    context = click.get_current_context()
    given = (context.get_parameter_source(name) for name in ("min_size", "max_size", "factor"))
    if counts is None or any(source is not ParameterSource.DEFAULT for source in given):
        return []
    return [v_counts.size_of(next(iter(programs.values())).collective, counts, datatypes.dtype(dtype).itemsize)]


def _compiled(
    asked: dict[str, options.Asked], on: Platform, mode: str, counts: list[int] | None
) -> dict[str, Program | OneSided]:
    """Returns the programs by their labels; unless only steps count, a GPU of the machine holds their threadblocks."""
    timed = mode != "alphabeta"
    programs = {
        label: variants.one_sided(spec, on)
        or variants.proven(variants.limited(spec, on) if timed else spec, on.topology)
        for label, spec in asked.items()
    }
    for program in programs.values():
        simulation = Simulation(program, on, counts)
        if timed:
            simulation.check_resident()
    return programs


def _one_sided(label: str, spec: options.Asked, direct: OneSided, wanted: Sequence[int], given: _Given) -> list[_Use]:
    """Returns what a column of a one-sided program has: each size may need another number of tiles of its pipelines."""
    if given.mode == "alphabeta" or given.sharing != SHARING[0]:
        raise click.UsageError("one-sided programs are simulated with --mode slot or explain, and --sharing serial")
    found: dict[int, _Use] = {}
    for size in wanted:
        one = direct.for_size(spec, size, given.dtype)
        if one.tiles not in found:
            found[one.tiles] = _Use(label, one, [])
            one.prove(spec)
        found[one.tiles].sizes.append(size)
    direct.remark()
    return list(found.values())


def _uses(
    label: str,
    spec: options.Asked,
    program: Program | OneSided,
    on: Platform,
    wanted: Sequence[int],
    given: _Given,
) -> list[_Use]:
    """Returns what a column has at the sizes: the program, or its fastest settings if the command line names none."""
    if not isinstance(program, Program):
        return _one_sided(label, spec, program, wanted, given)
    if given.mode == "alphabeta" or not trials.leaves_open(spec):
        return [_Use(label, program, list(wanted))]
    found: dict[str, _Use] = {}
    for size, way in trials.chosen(spec, program, on, wanted).items():
        name = label if way is None else spec.with_settings(way.label, label)
        found.setdefault(name, _Use(name, program if way is None else way.program, [])).sizes.append(size)
    return list(found.values())


def _choices(asked: dict[str, options.Asked], uses: dict[str, list[_Use]]) -> list[str]:
    """What is told of the settings of the columns."""
    plain = [asked[label].with_settings("instances=1", label) for label, each in uses.items() if each[0].name != label]
    told = [f"settings are chosen for each size; the plain form: {' '.join(plain)}"] if plain else []
    files = ((label, use.program, use.sizes) for label, each in uses.items() for use in each)
    remarks = ((label, report.outside_use(p, sizes)) for label, p, sizes in files if isinstance(p, Program))
    return [*told, *(f"{label}: {remark}" for label, remark in remarks if remark)]


def _column(label: str, each: Sequence[_Use], on: Platform, counts: list[int] | None, how: dict[str, Any]) -> Column:
    by_size = {
        size: cell
        for use in each
        for cell in (
            column(label, Simulation(use.program, on, counts), chosen=use.name if use.name != label else "", **how),
        )
        for size in use.sizes
    }
    return lambda size: by_size[size](size)


def _sources(
    on: Platform, worth: Sequence[tuple[int, trust.Expected]], compared: Sequence[baselining.Baseline]
) -> list[str]:
    """Returns where predicted times come from, and the errors of the calls that tell what they are worth."""
    about = [f"baseline {b.label}: {b.about}" for b in compared]
    return [f"predicted with {trust.preset(on)}; errors:", *trust.told(worth), *about]


def _print_head(
    on: Platform,
    mode: str,
    compared: Sequence[baselining.Baseline],
    worth: Sequence[tuple[int, trust.Expected]],
    changed: Sequence[str],
) -> None:
    rates = "latencies and line rates of the topology only" if mode == "alphabeta" else trust.preset(on, short=True)
    first = f"{on.topology.name}: {on.topology.rank_count} ranks, {rates}"
    more = "" if mode == "explain" else "; why: --mode explain"
    errors_told = [f"error: {trust.summary(worth)}{more}"] if worth else []
    output.comment(first, *changed, *errors_told, *(f"baseline {b.label}: {b.short}" for b in compared))
    names, units = ("speed-up", "(x or ~)") if compared else ("", "")
    click.echo(f"# {'size':>10}  {'time':>10} {'algbw':>8} {'busbw':>8} {'bound':>10} {names:>9}".rstrip())
    line = f"# {'(B)':>10}  {'(us)':>10} {'(GB/s)':>8} {'(GB/s)':>8} {'(us)':>10} {units:>9}".rstrip()
    click.echo(output.fitted(f"{line}  program, cause, bound by", _INDENT))


def _print_row(row: Row) -> None:
    for cell in row.cells:
        mark = "*" if cell.program == row.winner and len(row.cells) > 1 else " "
        share = f" {100 * cell.share:.0f}%" if cell.share < 1 else ""
        cause = f"; {cell.cause}{share}" if cell.cause else ""
        bound = f"; {cell.bound_by}" if cell.bound_by else ""
        gain = f" {row.speedup_text(cell):>9}" if row.baseline else ""
        least = f"{1e6 * cell.bound_s:.2f}" if cell.bound_s else "-"
        line = (
            f"{cell.size:>12} {mark}{1e6 * cell.time_s:>10.2f} {cell.algbw:>8.2f} {cell.busbw:>8.2f} "
            f"{least:>10}{gain}  {cell.chosen or cell.program}{cause}{bound}"
        )
        click.echo(output.fitted(line, _INDENT))


def _print_winners(rows: Sequence[Row]) -> None:
    for some in ranges(rows) if len(rows[0].cells) > 1 else ():
        sizes_told = trust.span(row.size for row in some)
        output.comment(f"{sizes_told}: {some[0].winner}{lead(some)}")


def _print_next(row: Row, asked: dict[str, options.Asked], on: Platform) -> None:
    """On a terminal: how the fastest program of the last row is deployed."""
    cell = min((cell for cell in row.cells if cell.program in asked), key=lambda cell: cell.time_s)
    text = asked[cell.program].text + cell.chosen[len(cell.program) :]
    if sys.stdout.isatty() and (command := variants.next_command(text, on.topology)):
        output.comment(command)


def _explain(simulation: Simulation, size: int, how: dict[str, Any]) -> dict[str, Any]:
    """The explanation for a size as plain data."""
    p = simulation.run(size, **how, explain=True)
    assert p.explanation is not None  # noqa: S101  asked for
    return {
        "size": p.size,
        "time_us": p.time_us,
        "critical_path_us": {k: 1e6 * v for k, v in p.explanation.causes.items()},
        "links_us": {k: 1e6 * v for k, v in p.explanation.links.items()},
        "stalls_us": {k: 1e6 * v for k, v in p.explanation.stalls.items()},
        "work_us": 1e6 * p.explanation.work_s,
        "path": [asdict(stretch) for stretch in p.explanation.path],
    }


def _advice(spec: options.Asked, program: Program, on: Platform, reason: dict[str, Any]) -> dict[str, Any]:
    error = Simulation(program, on).expected(reason["size"]).error
    with output.working("trying changes"):
        tried = trials.trials(spec, program, on, reason["size"])
    return {"advice": advised(1e-6 * reason["time_us"], tried, error), "tried": len(tried)}


def _print_reason(reason: dict[str, Any]) -> None:
    total = reason["time_us"] or 1.0
    click.secho(f"# {reason['program']} at {sizes.format_size(reason['size'])}: {reason['time_us']:.2f} us", bold=True)
    click.echo("#   critical path:")
    for cause, us in reason["critical_path_us"].items():
        click.echo(f"#     {cause:<12} {us:>10.2f} us {100 * us / total:>5.1f}%")
    for link, us in list(reason["links_us"].items())[:_STEPS_SHOWN]:
        click.echo(f"#       {link:<30} {us:>10.2f} us")
    click.echo(f"#   all threadblocks together worked {reason['work_us']:.2f} us and waited:")
    for cause, us in reason["stalls_us"].items():
        click.echo(f"#     {cause:<12} {us:>10.2f} us")
    longest = sorted(reason["path"], key=lambda s: s["from_s"] - s["to_s"])[:_STEPS_SHOWN]
    click.echo(f"#   its longest segments, of {len(reason['path'])}:")
    for s in sorted(longest, key=lambda s: s["from_s"]):
        link = f" {s['resource']}" if s["resource"] else ""
        click.echo(f"#     {1e6 * s['from_s']:>10.2f} to {1e6 * s['to_s']:>10.2f} us  {s['cause']}{link}, {s['where']}")
    if reason.get("tried"):
        click.echo(f"#   what may help, of {counted(reason['tried'], 'change')} that were simulated:")
        for line in reason["advice"] or ["nothing: none is faster by 2%"]:
            click.echo(f"#     {line}")


def _data(
    on: Platform,
    mode: str,
    rows: Sequence[Row],
    reasons: dict[str, Any],
    compared: Sequence[baselining.Baseline],
) -> dict[str, Any]:
    parameters = on.parameters
    return {
        "topology": on.topology.name,
        "ranks": on.topology.rank_count,
        "mode": mode,
        "preset": {"name": parameters.name, "status": parameters.evidence.status, **asdict(parameters.evidence)},
        "baselines": [{"name": b.label, **b.data} for b in compared],
        "rows": [
            {
                "size": row.size,
                "winner": row.winner,
                "ahead": None if row.lead is None else {"of": row.lead[0], "log_ratio": row.lead[1]},
                "distinguishable": row.sure,
                "programs": [
                    {
                        "program": c.program,
                        "chosen": c.chosen or None,
                        "size": c.size,
                        "time_us": 1e6 * c.time_s,
                        "algbw": c.algbw,
                        "busbw": c.busbw,
                        "bound_us": 1e6 * c.bound_s,
                        "bound_by": c.bound_by,
                        "cause": c.cause,
                        "cause_share": c.share,
                        "speedup": row.speedup(c),
                        "distinguishable": row.distinguishable(c) if row.baseline else None,
                        "expected": c.expected and c.expected.data(),
                    }
                    for c in row.cells
                ],
            }
            for row in rows
        ],
        "winners": [
            {"from": r[0].size, "to": r[-1].size, "program": r[0].winner, "distinguishable": r[0].sure}
            for r in ranges(rows)
        ],
        "reasons": reasons,
    }


sim.add_command(calibrate)
sim.add_command(convert)
sim.add_command(sim_step)
sim.add_command(together)
