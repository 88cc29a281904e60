"""gc3 bench."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, cast

import click

from gc3 import collectives as known_collectives
from gc3 import datatypes
from gc3.cli import bench_compare, engines, options, output, sizes, target, trials
from gc3.cli.bench_compare import Earlier
from gc3.cli.command import Command, gathered
from gc3.cli.files import picture_option
from gc3.runtime import measure
from gc3.runtime.measure import Measurement, Row, Timer
from gc3.runtime.program import Program, verify
from gc3.support.words import counted

_MOST_ROWS = 10_000
_COLUMNS = ("size", "count", "type", "redop", "root")
_WIDTH = 125  # of the table
_GROUP = ("time", "algbw", "busbw", "#wrong")


@dataclass(frozen=True, slots=True)
class _Given:
    """The command line."""

    spec: options.Asked
    min_size: int
    max_size: int | None
    factor: int | None
    step: int | None
    dtype: str
    op: str
    iters: int
    warmup: int
    no_check: bool
    engine: options.Engine
    compare: tuple[options.Asked, ...]
    picture: str | None
    as_json: bool


@click.command(
    "bench",
    cls=Command,
    examples=[
        "gc3 bench ring_allreduce:R=8 -b 1KiB -e 64MiB -f 2",
        "gc3 bench ring_allreduce:R=8 -b 1KiB -e 64MiB -f 2 --json --picture times.svg",
        "gc3 bench ring_allreduce:R=8 -b 1MiB --compare 1.json --compare 2.json",
        "gc3 bench ring_allreduce:R=8 -b 1MiB --compare direct_allreduce:R=8",
        "gc3 bench h.gc3 -b 1MiB -e 4MiB -i 1MiB --iters 50",
        "gc3 bench two_step_alltoall:N=2,G=2,protocol=LL128 -b 1M -e 16M -f 4",
    ],
)
@options.program_argument()
@click.option("-b", "--min-size", type=sizes.Size(), default="32MiB", show_default=True, help="Smallest size.")
@click.option("-e", "--max-size", type=sizes.Size(), help="Largest size.  [default: the smallest]")
@click.option("-f", "--factor", type=click.IntRange(min=2), help="Multiply the size by this from row to row.")
@click.option("-i", "--step", type=sizes.Size(), help="Or add this to the size.  [default: 1MiB]")
@options.dtype_option
@options.op_option
@click.option("-n", "--iters", type=click.IntRange(min=1), default=20, show_default=True, help="Timed iterations.")
@click.option(
    "-w", "--warmup", type=click.IntRange(min=0), default=5, show_default=True, help="Untimed iterations before them."
)
@options.no_check_option
@options.engine_option()
@click.option(
    "--compare",
    type=options.Program(),
    multiple=True,
    metavar="WHAT",
    help="Say what is faster or slower than WHAT: an output of --json, OLD.json, of which ten or more tell how much "
    "runs differ; or another program, which runs in turns with X.",
)
@picture_option("Draw the median times.")
@options.json_option
@gathered(_Given)
def bench(given: _Given) -> int:
    """Time X over a range of sizes, as nccl-tests does.

    X is an algorithm of `gc3 list`, PATH.py:FUNCTION or PATH.json, which is compiled out of place and in place, or a
    compiled program (.gc3, .xml), which fills the columns of its modes.

    size is the largest buffer of a rank in bytes, count the elements per block. time is the mean of the timed
    iterations; an iteration lasts until the slowest rank has finished. algbw = size / time; busbw = algbw times the
    factor of the collective, such as 2(n-1)/n for allreduce; GB is 10^9 bytes. #wrong counts elements that differ from
    NumPy's. A size that does not divide into whole elements is rounded down.

    If an algorithm is named without protocol, instances, channels and chunks, those that are predicted to be clearly
    faster at the largest size are taken, and told; X:instances=1 is the plain form.
    """
    engine, as_json = given.engine, given.as_json
    wanted = _sizes(given)
    asked = given.spec
    spec, told = trials.settled_here(asked, lambda: target.compiled(asked.name, asked.how), engine, wanted[-1])
    out_of_place, in_place = _programs(spec, engine.options.slots)
    settings: dict[str, Any] = {
        "dtype": given.dtype,
        "op": given.op,
        "warmup": given.warmup,
        "iterations": given.iters,
        "check": not given.no_check,
    }
    olds = [each.text for each in given.compare if each.name.endswith(".json")]
    at_hand = [each for each in given.compare if not each.name.endswith(".json")]
    if at_hand and (olds or len(at_hand) > 1):
        raise click.UsageError("--compare takes earlier outputs of --json, or one program that runs in turns with X")
    earlier = Earlier(olds) if olds else None
    infos = {"out_of_place": out_of_place, "in_place": in_place}
    pairs = [
        bench_compare.common(infos, dict(zip(infos, _programs(each, engine.options.slots), strict=True)))
        for each in at_hand
    ]
    programs = {mode: None if p is None else p.info() for mode, p in infos.items()}
    if earlier is not None:
        earlier.check(programs, {**settings, "engine": engine.name})
    rows: list[Row] = []
    some = out_of_place or in_place
    if not as_json:
        _print_head(some, settings, engine.name, told)
    with engines.timer(engine) as timer:
        for row in _rows(out_of_place, in_place, wanted, settings, timer, printing=not as_json):
            rows.append(row)
            if not as_json:
                click.echo(_line(row))

    def again(row: Row, mode: str) -> Measurement:
        plain: dict[str, Any] = {**settings, "check": False}
        fresh = bench_compare.fresh(cast("Program", infos[mode]))
        with engines.timer(engine) as timer:
            return measure.measure(fresh, row.count, timer=timer, watched=True, **plain)

    compared = [] if earlier is None else list(earlier.differences(rows, again))
    for both in pairs:
        with output.working("comparing in pairs"):
            compared += bench_compare.in_pairs(both, rows, lambda: engines.timer(engine), settings)
    modes = [m for row in rows for m in row.modes]
    average = sum(m.busbw for m in modes) / len(modes)
    wrong = sum(m.wrong or 0 for m in modes)
    if given.picture is not None:
        head = f"{spec.text} as {engine.name} on {measure.machine()['cpu']}, medians"
        bench_compare.plot(rows, earlier, given.picture, head)
    if as_json:
        data = {
            "programs": programs,
            "chosen": None if spec is given.spec else spec.text,
            "settings": {**settings, "engine": engine.name},
            "rows": [asdict(row) for row in rows],
            "average_busbw": average,
            "wrong": wrong,
            **({"compared": [asdict(d) for d in compared]} if given.compare else {}),
        }
        output.emit(data)
    else:
        click.echo(f"# Out of bounds values : {wrong} {'OK' if wrong == 0 else 'FAILED'}")
        click.echo(f"# Avg bus bandwidth    : {average:g}")
        for difference in compared:
            click.echo(f"# {difference}")
        if earlier is not None and (
            advice := earlier.advice() if compared else f"'{earlier.path}' has none of these sizes"
        ):
            click.echo(f"# {advice}")
    return 0 if wrong == 0 else 1


def _sizes(given: _Given) -> list[int]:
    smallest, factor, step = given.min_size, given.factor, given.step
    largest = smallest if given.max_size is None else given.max_size
    if factor is not None and step is not None:
        raise click.UsageError("-f/--factor and -i/--step exclude each other")
    if largest < smallest:
        raise click.UsageError(f"the largest size, {largest} B, is below the smallest, {smallest} B")
    growing = measure.sizes(smallest, largest, factor=factor or 1, step=1024**2 if step is None else step)
    wanted = list(islice(growing, _MOST_ROWS + 1))
    if len(wanted) > _MOST_ROWS:
        raise click.UsageError(f"that makes more than {_MOST_ROWS} rows: raise -f/--factor or -i/--step")
    return wanted


def _programs(spec: options.Asked, slots: int) -> tuple[Program | None, Program | None]:
    """The programs of the two modes: both of an algorithm, or those that a file or a script is for."""
    name, how = spec.name, spec.how
    if target.is_program(name) or target.is_script(name):
        made = {program.in_place: program for program in target.modes(name, how)}
    else:
        modes = (False, True) if how.in_place is None else (how.in_place,)
        made = {mode: target.compiled(name, how, slots=slots, in_place=mode) for mode in modes}
    found = (made.get(False), made.get(True))
    for program in found:
        if program is not None:
            with output.working("proving"):
                verify(program, slots=slots)
    return found


def _rows(
    out_of_place: Program | None,
    in_place: Program | None,
    wanted: list[int],
    settings: dict[str, Any],
    timer: Timer,
    *,
    printing: bool,
) -> Iterator[Row]:
    programs = (out_of_place, in_place)
    model = next(p for p in programs if p is not None).collective
    dtype, op = settings["dtype"], settings["op"]
    itemsize = datatypes.dtype(dtype).itemsize
    measured = sum(p is not None for p in programs)
    with output.progress("timing", measured * len(wanted), printing=printing) as begin:
        for size in wanted:
            count = known_collectives.count_for(model, size, itemsize)
            actual = known_collectives.size_for(model, count, itemsize)
            cells: list[Measurement | None] = []
            for program in programs:
                if program is None:
                    cells.append(None)
                    continue
                begin(f"{sizes.format_size(size)} {'in place' if program.in_place else 'out of place'}")
                cells.append(measure.measure(program, count, timer=timer, watched=True, **settings))
            redop = op if known_collectives.reduces(model) else "none"
            root = model.root if known_collectives.rooted(model) else -1
            yield Row(actual, count, dtype, redop, root, cells[0], cells[1])


def _print_head(program: Program | None, settings: dict[str, Any], engine_name: str, told: str) -> None:
    if program is not None:
        about = program.info()
        line = (
            f"# {about['name']}: {about['collective']}, {about['ranks']} ranks as {engine_name}, "
            f"{about['protocol']}, {counted(about['instances'], 'instance')}, "
            f"{settings['iterations']} iterations after {settings['warmup']} to warm up"
        )
        click.echo(output.fitted(line, "#   "))
    if told:
        click.echo(output.fitted(f"# {told}", "#   "))
    if output.narrow(_WIDTH):
        click.echo(f"#{'size':>8} mode{''.join(f'{name:>9}' for name in _GROUP)}")
        click.echo(f"#{'':>13}{'(us)':>9}{'(GB/s)':>9}{'(GB/s)':>9}")
        return
    widths = (12, 12, 8, 6, 6)
    spaces = "".join(f"{'':>{w}}  " for w in widths)
    click.echo(f"#{spaces}{'out-of-place':^36}{'in-place':^36}"[:120].rstrip())
    for names, group in (
        (_COLUMNS, _GROUP),
        (("(B)", "(elements)", "", "", ""), ("(us)", "(GB/s)", "(GB/s)", "")),
    ):
        cells = "".join(f"{n:>{w}}  " for n, w in zip(names, widths, strict=True))
        columns = "".join(f"{n:>9}" for n in group * 2)
        click.echo(f"#{cells[1:]}{columns}".rstrip())


def _line(row: Row) -> str:
    if output.narrow(_WIDTH):
        modes = (("out", row.out_of_place), ("in", row.in_place))
        return "\n".join(f"{sizes.format_size(row.size):>9} {name:>4}{_cells(m)}" for name, m in modes if m is not None)
    fixed = f"{row.size:>12}  {row.count:>12}  {row.type:>8}  {row.redop:>6}  {row.root:>6}  "
    return fixed + "".join(_cells(m) for m in (row.out_of_place, row.in_place))


def _cells(measurement: Measurement | None) -> str:
    if measurement is None:
        return "".join(f"{'N/A':>9}" for _ in _GROUP)
    time = measurement.time_us
    digits = 2 if time < 100 else 1 if time < 10000 else 0  # noqa: PLR2004  nccl-tests' own steps
    wrong = "N/A" if measurement.wrong is None else str(measurement.wrong)
    return f"{time:>9.{digits}f}{measurement.algbw:>9.2f}{measurement.busbw:>9.2f}{wrong:>9}"
