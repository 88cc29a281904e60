"""gc3 tune."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from gc3 import collectives
from gc3.cli import completion, in_switch, options, output, sizes, target
from gc3.cli.blamed import blaming_the_user
from gc3.cli.command import Command, gathered
from gc3.cli.files import OutputFile
from gc3.cli.interrupt import INTERRUPTED
from gc3.cli.machine import PLACE, machine_option
from gc3.cli.tables import write_table
from gc3.cli.variants import load_platform
from gc3.comm import init, kept, programs
from gc3.comm.selection import read_rows
from gc3.lang import Algorithm
from gc3.runtime import kept_files, measure
from gc3.sim import Platform, trust
from gc3.support.files import alone, check_writable, make_folder, write_text
from gc3.support.words import counted, split_values
from gc3.tune import (
    Found,
    Goal,
    HostTimer,
    Measured,
    Own,
    Range,
    Record,
    SimulatedTuner,
    Tuner,
    check_fits,
    nccl_rules,
    ranges,
    registered_ranges,
    serve,
    simulated,
)
from gc3.tune import table as as_table
from gc3.tune.ranges import REFERENCE, SIMULATED_CHANGE, kept_ranges
from gc3.tune.space import left_out

_KNOWN = tuple(collectives.BUILTIN)
_SET_BY_TUNE = frozenset({"R", "N", "G", "root", "channels", "chunks", "parallel"})
_COMMON = ("allreduce", "allgather", "reducescatter", "alltoall", "broadcast")


@dataclass(frozen=True, slots=True)
class _Given:
    """The command line."""

    what: tuple[str, ...]
    file: str | None
    engine: str
    machine: str | None
    ranks: tuple[int, ...] | None
    min_size: int
    max_size: int
    factor: int
    skews: tuple[float, ...] | None
    time_limit: float | None
    also: tuple[str, ...]
    all_sizes: bool
    runtime: str | None
    rules_path: str | None
    fresh: bool
    as_json: bool


@click.command(
    "tune",
    cls=Command,
    examples=[
        "gc3 tune --ranks 2 --time-limit 120",
        "gc3 tune --engine threads --ranks 4 --time-limit 120",
        "gc3 tune --engine hosts --time-limit 120",
        "gc3 tune -o tuned.json",
        "gc3 tune allreduce --ranks 4 -b 1KiB -e 16MiB -o tuned.json",
        "gc3 tune --ranks 2,4,8 --time-limit 120 -o tuned.json --json",
        "gc3 tune alltoall --ranks 8 --skew 2,8 -o tuned.json",
        "gc3 tune allgather --ranks 8 --with best.json -o tuned.json",
        "gc3 tune examples/my_allgather.py:ring --ranks 4 -o tuned.json",
        "gc3 tune mine.py:tree:width=2+4,depth=1+2 --topology ndv4 -o ndv4.json",
        "gc3 tune allreduce alltoall --topology ndv4 -o ndv4.json",
        "gc3 tune --topology ndv4 -e 1GiB -o ndv4.json --nccl-tuner ndv4.csv",
    ],
)
@click.argument(
    "what", nargs=-1, metavar="[COLLECTIVE|PATH.py:FUNCTION[:NAME=VALUE+...]]...", shell_complete=completion.problems
)
@click.option(
    "-o",
    "--output",
    "file",
    type=OutputFile(),
    metavar="FILE",
    help="The table to write, such as tuned.json.  [default: the one that gc3.init() takes on this machine, or "
    "gc3.select() with --engine threads]",
)
@click.option(
    "--engine",
    type=click.Choice(("processes", "threads", "hosts")),
    default="processes",
    show_default=True,
    help="What a rank is, measured on this machine; hosts: the ranks of this job, which a launcher has started on "
    "several hosts: start this command on each. Every host keeps the table.",
)
@machine_option("Simulate on this machine instead. " + PLACE)
@click.option(
    "--ranks", type=options.Counts(2), metavar="N,...", help="[default: 2,4,8; with -t: all of the machine's]"
)
@sizes.range_options(largest="16MiB")
@click.option(
    "--skew",
    "skews",
    type=options.Skews(),
    metavar="X,...",
    help="Also measure blocks of different lengths, whose longest is so many times the mean.  [default: equal blocks]",
)
@click.option(
    "--time-limit",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Stop after this time and write the results so far.  [default: no limit]",
)
@click.option(
    "--with",
    "also",
    multiple=True,
    metavar="TABLE",
    help="Also try the programs of this table, such as one of `gc3 synth best`.",
)
@click.option(
    "--all-sizes",
    is_flag=True,
    help="With --topology: also write rows for sizes at which the simulated NCCL is faster.",
)
@click.option(
    "--target",
    "runtime",
    type=click.Choice(["msccl", "azure", "rccl"]),
    help="With --topology: only programs that this runtime executes as MSCCL XML (gc3 export).",
)
@click.option(
    "--nccl-tuner",
    "rules_path",
    type=OutputFile(),
    metavar="FILE.csv",
    help="With --topology: also write what NCCL itself should choose, for a tuner plugin of NCCL (docs/nccl.md).",
)
@click.option("--fresh", is_flag=True, help="Also repeat the measurements of earlier runs for this table.")
@options.json_option
@gathered(_Given)
def tune(given: _Given) -> int:
    """Find the best program for each collective, number of ranks and range of sizes, by measuring or simulating.

    The collectives are those named, or all, or those of your algorithms, or else the five usual ones.
    Tries the library's algorithms, and your own if they are named, with every protocol, with several instances and
    slots: all of them briefly, then the best ones and the default table's choice in turn, until none of the others can
    be faster than the best by more than 2 %. Times are medians with their 95 % intervals. A change of program from one
    size to the next must gain 5 %.
    The result is a selection table for `gc3.init(table=...)` and `gc3 table`. Without -o it is kept in the user's cache
    folder (GC3_CACHE), together with the rows of earlier commands, and used on this machine with this version of gc3:
    by gc3.init(), or, with --engine threads, by gc3.select() and `gc3 run COLLECTIVE`. Ctrl-C writes the results so
    far. Measurements are kept in FILE.points: the same command continues where it stopped.
    With --engine hosts the ranks are those of a job on several hosts, and its table is used by jobs whose ranks are
    placed in the same way on the same hosts.
    """
    wanted = tuple(sizes.in_range(given.min_size, given.max_size, given.factor))
    if given.skews and given.engine == "threads":
        raise click.UsageError("--skew is for processes and simulations; calls of threads have equal blocks")
    on = _machine(given)
    engine = "sim" if on else "processes" if given.engine == "hosts" else given.engine
    rules_path, also = given.rules_path, given.also
    hosts = _join(given) if given.engine == "hosts" else None
    if hosts is not None and hosts.comm.rank:
        serve(hosts.comm)
        return 0
    names, chosen = _named(given.what)
    keeps = given.file is None
    file = _kept_file(kept.HOSTS if hosts else engine) if given.file is None else given.file
    _be_alone(file, keeps=keeps and hosts is None, goes_on=on is None and _lasts(file))
    ranks = given.ranks or _all_ranks(on, hosts, () if names else chosen)
    named = hosts.names if hosts else ()
    record = (
        Record(file, fresh=given.fresh, engine=engine, hosts=" ".join(named)) if on is None and _lasts(file) else None
    )
    names, own = _all_names(names, tuple(_with_version(each, count) for each in chosen for count in ranks))
    rows = tuple(row for table in also for row in read_rows(table))
    all_skews = tuple(sorted({1.0, *(given.skews or ())}))
    goal = Goal(names, ranks, wanted, 0.02, given.time_limit, engine, rows, own, all_skews, hosts)
    tuner = (
        Tuner(goal, record.points if record else ()) if on is None else SimulatedTuner(goal, on, target=given.runtime)
    )
    _tell(record, tuner)
    if on is not None and rules_path is not None:
        nccl_rules.check(on, names)
    check_writable(file)  # before anything is measured
    here, telling = None if on else _here(), not (given.as_json or sys.stdout.isatty())
    with output.progress("tuning", len(tuner.places) + len(ranks) * len(names), printing=telling) as begin:
        points, interrupted = _search(tuner, begin, record, telling=telling)
    found = _ranges(tuner, wanted, everything=keeps, with_nccl=not given.all_sizes)
    rows_found = _rows(found, file, on)
    made = [hosts.row(row) for row in rows_found] if hosts else rows_found
    written = bool(made) or not interrupted or not Path(file).is_file()  # else an older table is better than none
    if written:
        write_table(file, as_table(made, here, engine), private=keeps)
    if on is not None and rules_path is not None and not interrupted:
        with output.working("simulating NCCL"):
            write_text(rules_path, "\n".join(nccl_rules.lines(on, names, wanted)) + "\n")
    if hosts and not interrupted:
        hosts.finish(Path(file).read_text() if keeps else None)
    if given.as_json:
        output.emit({"engine": engine, "table": file, **_data(tuner.found, on), "rows": rows_found})
    else:
        click.echo("\n".join(line(point, on) for point in points), nl=bool(points))
        _print_summary(tuner.found, found, on)
        click.echo(f"{counted(len(made), 'row')} in {file}" if written else f"nothing was found; {file} is as it was")
    if on is not None and tuner.found.points:
        in_switch.remark_on_choices(on, [each.spec for each in found if each.spec != REFERENCE], ranks[0])
        _remark_on_predictions(on, names, tuner.found.points)
    return INTERRUPTED if interrupted else 0


def _remark_on_predictions(on: Platform, names: Sequence[str], points: Sequence[Measured]) -> None:
    worth = [(p.size, simulated.worth(on, p, p.best[0])) for p in points]
    output.remark(f"predicted with {trust.preset(on, short=True)}; error: {trust.summary(worth)}; why: --json")
    if left := left_out(names, on.topology):
        output.remark(left)


def _be_alone(file: str, *, keeps: bool, goes_on: bool) -> None:
    """Refuses to write a table while another command does, until this one ends: each would remove what the other adds.

    `keeps`: it is that of this machine; `goes_on`: from the measurements of earlier commands.
    """
    until_the_end = click.get_current_context().with_resource
    if keeps:
        told = f"'{file}': {kept_files.BUSY}, or name another file with -o"
        until_the_end(kept_files.alone(told, "FileUnwritable"))
    if goes_on:
        told = f"another gc3 tune is writing '{file}': wait until it has ended, or name another file with -o"
        until_the_end(alone(f"{os.path.realpath(file)}.lock", told, "FileUnwritable"))


def _join(given: _Given) -> HostTimer:
    """The ranks of this job, until the command ends."""
    if given.ranks or given.also:
        raise click.UsageError("--engine hosts measures the ranks of this job: leave out --ranks and --with")
    return HostTimer(click.get_current_context().with_resource(init()))


def _named(what: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[Own, ...]]:
    """The collectives, and the user's algorithms, of the arguments."""
    own = tuple(own for spec in dict.fromkeys(what) if spec not in (*_KNOWN, "all") for own in _own(spec))
    if "all" in what:
        return _KNOWN, own
    found = {*(spec for spec in what if spec in _KNOWN), *(each.collective for each in own)}
    return tuple(name for name in _KNOWN if name in found) or (() if own else _COMMON), own


def _all_names(names: tuple[str, ...], own: tuple[Own, ...]) -> tuple[tuple[str, ...], tuple[Own, ...]]:
    """The collectives, with custom ones, and the user's algorithms."""
    conditions: dict[tuple[str, int], str] = {}
    for each in own:
        known = conditions.setdefault((each.collective, each.ranks), each.condition)
        if known != each.condition:
            raise click.UsageError(f"'{each.collective}' has two conditions on {each.ranks} ranks: rename one of them")
    return tuple(dict.fromkeys((*names, *(each.collective for each in own if each.condition)))), own


def _all_ranks(on: Platform | None, hosts: HostTimer | None, own: tuple[Own, ...]) -> tuple[int, ...]:
    """The numbers of ranks where none is named; `own`: all that is tuned, if it is for one number each."""
    if hosts is not None:
        return (hosts.comm.size,)
    if own and all(each.ranks for each in own):
        return tuple(dict.fromkeys(each.ranks for each in own))
    return (2, 4, 8) if on is None else (on.topology.rank_count,)


def _search(
    tuner: Tuner, begin: Callable[[str], None], record: Record | None, *, telling: bool
) -> tuple[Sequence[Measured], bool]:
    """Goes through all points; returns those not told yet, by their sizes, and whether Ctrl-C has ended that.

    The search goes to sizes that are far apart first, and to some again. `telling`: a file or a pipe has each point as
    soon as it is known.
    """
    found: dict[tuple[int, str, bool, float, int], Measured] = {}
    interrupted = False
    try:
        for point in tuner.points(begin):
            found[point.ranks, point.collective, point.in_place, point.skew, point.size] = point
            if record:
                record.write(tuner.measured.values())
            if telling and not isinstance(tuner, SimulatedTuner):
                click.echo(line(point))
    except KeyboardInterrupt:
        interrupted = True
    if isinstance(tuner, SimulatedTuner):  # the last simulations of a size come after those of all others
        return tuner.found.points, interrupted
    return [] if telling else [found[place] for place in sorted(found)], interrupted


def _own(text: str) -> Iterator[Own]:
    """The algorithms of a user's, by an absolute path, since the table may be used from another folder.

    Each is one with a value of every range that follows its name, as in mine.py:ring:width=1+2.
    """
    try:
        name, values = split_values(text)
    except ValueError as part:
        raise click.UsageError(
            f"'{part}' of '{text}' is not NAME=VALUE+VALUE+..., as in mine.py:ring:width=1+2"
        ) from None
    if own := _SET_BY_TUNE & values.keys():
        raise click.UsageError(f"'{text}': gc3 tune tries values of {', '.join(sorted(own))} by itself: leave them out")
    for chosen in product(*(value.split("+") for value in values.values())):
        yield _own_with(name, ",".join(f"{key}={value}" for key, value in zip(values, chosen, strict=True)))


def _own_with(name: str, defaults: str) -> Own:
    path, _, function = name.partition(":")
    if not path.endswith(".py") or target.is_script(name):
        raise click.UsageError(f"'{name}' is neither PATH.py:FUNCTION nor one of {', '.join(_KNOWN)}, all")
    spec = ":".join(part for part in (str(Path(path).absolute()), function, defaults) if part)
    found = target.algorithm(spec)
    return Own(spec, found.collective_name, "", _own_ranks(path, found))


def _own_ranks(path: str, algorithm: Algorithm) -> int:
    """The number of ranks of an algorithm whose custom collective has one; 0: the parameters decide."""
    return blaming_the_user(path, lambda: algorithm.begin().model.ranks) if algorithm.takes({}) else 0


def _with_version(own: Own, ranks: int) -> Own:
    """Compiles one of the user's algorithms, so that mistakes in it are reported at its lines."""
    in_place = own.collective == "broadcast"
    path = own.spec.partition(":")[0]
    about, version = blaming_the_user(path, lambda: check_fits(own.spec, ranks, in_place=in_place))
    return Own(own.spec, about.name, version, ranks, about.condition)


def _machine(given: _Given) -> Platform | None:
    if given.machine is None:
        if given.all_sizes or given.runtime or given.rules_path:
            raise click.UsageError("--all-sizes, --target and --nccl-tuner are for --topology")
        return None
    if click.get_current_context().get_parameter_source("engine") is not ParameterSource.DEFAULT:
        raise click.UsageError("--topology simulates, and --engine measures: give one of them")
    return load_platform(given.machine)


def _lasts(file: str) -> bool:
    """Whether the table is, or will be, a file that a later run can read: not a terminal or a pipe."""
    path = Path(file)
    return path.is_file() or not path.exists()


def _tell(record: Record | None, tuner: Tuner) -> None:
    if record is None:
        return
    if record.outdated:
        output.remark(f"repeating all measurements: {record.path} was measured with {record.outdated}")
    known = len(tuner.found.points)
    if known:
        output.remark(f"{counted(known, 'point')} known from {record.path}; --fresh repeats them")


def _kept_file(engine: str) -> str:
    """Where the table of this machine is kept; its folder is there."""
    if engine == "sim":
        raise click.UsageError("--topology needs -o FILE: only what was measured is kept for this machine")
    place = kept.path(engine)
    if place is None:
        raise click.UsageError("GC3_CACHE=off, or this user has no home: say where to write the table with -o FILE")
    make_folder(place.parent)
    return str(place)


def _ranges(tuner: Tuner, wanted: tuple[int, ...], *, everything: bool, with_nccl: bool) -> list[Range]:
    """The rows of what is known: of what was asked for, or of earlier commands, too."""
    if isinstance(tuner, SimulatedTuner):
        return ranges(tuner.found.points, wanted, change=SIMULATED_CHANGE, other=0.0, with_reference=with_nccl)
    if everything:
        return kept_ranges(tuner.measured.values(), tuner.goal)
    return registered_ranges(tuner.found.points, wanted) + ranges(tuner.found.points, wanted)


def _rows(found: list[Range], file: str, on: Platform | None) -> list[dict[str, Any]]:
    """The rows of a table, with what simulated times are worth; programs that are files are copied beside it."""
    for each in found:
        if each.spec.is_file:
            programs.copy(each.spec.algorithm, file)
    rows = [(each, each.row()) for each in found if each.spec != REFERENCE]
    if on is not None:
        for each, row in rows:
            told = trust.told((p.size, simulated.worth(on, p, each.spec)) for p in each.points)
            row["note"] += f"; predicted for {on.topology.name}; {'; '.join(told)}"
    return [row for _, row in rows]


def _here() -> str:
    """This machine, for people."""
    about = measure.machine()
    return f"{about['cpu']}, {counted(about['cores'], 'core')}"


def line(point: Measured, on: Platform | None = None) -> str:
    """Says what was measured at a point, or simulated on a machine."""
    spec, took = point.best
    where = f"{point.collective}, {point.ranks} ranks, {sizes.format_size(point.size)}"
    if point.skew > 1:
        where += f", skew {point.skew:g}"
    if point.reference is not None and on is not None:
        name, other = point.reference
        than = f"{simulated.compared(on, point, REFERENCE, name, other)} as simulated"
    elif point.default is None:
        than = "with nothing to compare with"
    elif spec == point.default:
        than = "the default"
    elif gain := point.gain:
        than = "{:.2f} ({:.2f} to {:.2f}) times the default's speed".format(*gain)
    else:
        than = "not compared with the default"
    at = point.interval_of(spec)
    between = f" ({at[0]:.4g} to {at[1]:.4g})" if at else ""
    return f"{where}: {took:.4g} us{between} with {spec}, {than}; {_sure(point)}"


def _sure(point: Measured) -> str:
    """How sure it is that the best program is the best one."""
    tried = f"{point.tried} tried"
    if point.reference is not None or point.within is None:
        return tried
    return f"{tried}, none is faster" + (f" by more than {100 * point.within:.1f} %" if point.within else "")


def _print_summary(found: Found, rows: list[Range], on: Platform | None) -> None:
    for name, why in found.failed.items():
        output.remark(f"{name} cannot be timed: {why}")
    if not found.finished:
        again = "continue" if on is None else "begin again: simulations are not kept"
        brief = sum(point.brief for point in found.points)
        output.remark(
            f"not all points are measured{f', and {brief} only briefly' if brief else ''}: the default table serves "
            f"the missing ones; repeat the command to {again}"
        )
    for each in (each for each in rows if each.spec == REFERENCE):
        upto = f"to {each.end - 1} B"
        name = each.points[0].reference or ("NCCL", 0.0)
        known = [p for p in each.points if on is not None and p.reference is not None and simulated.tells(on, p)]
        unsure = "" if known else ", but by less than the error of its time"
        output.remark(
            f"{each.collective} of {each.first} B {upto} has no row: {name[0]} is faster there, as simulated{unsure}; "
            "--all-sizes writes one"
        )


def _data(found: Found, on: Platform | None) -> dict[str, Any]:
    points = [
        {
            "collective": point.collective,
            "ranks": point.ranks,
            "size": point.size,
            "in_place": point.in_place,
            "skew": point.skew,
            "tried": point.tried,
            "default_us": point.default_us,
            "gain": point.gain,
            "reference": point.reference,
            "expected": None if on is None else simulated.worth(on, point, point.best[0]).data(),
            "distinguishable": None if on is None or point.reference is None else simulated.tells(on, point),
            "within": point.within,
            "times": [
                {"program": asdict(spec), "median_us": took, "interval_us": point.interval_of(spec)}
                for spec, took in point.times_us
            ],
        }
        for point in found.points
    ]
    return {"finished": found.finished, "failed": found.failed, "points": points}
