"""gc3 run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import click

from gc3 import collectives, datatypes, errors
from gc3.cli import engines, one_sided, options, output, report, sizes, target
from gc3.cli.command import Command
from gc3.comm.selected import Selected
from gc3.runtime import measure
from gc3.runtime.checking import Case, Comparison
from gc3.runtime.direct import DirectProgram
from gc3.runtime.measure import Timer
from gc3.runtime.program import Program, verify
from gc3.support.words import counted


@click.command(
    "run",
    cls=Command,
    examples=[
        "gc3 run h.gc3 --size 64MiB --dtype float32",
        "gc3 run examples/my_allgather.py:ring:R=4 --size 1000003B --dtype uint8",
        "gc3 run allreduce-8-ranks.xml --size 256KiB",
        "gc3 run synthesized.json --size 1MiB",
        "gc3 run ring_allreduce:R=8,protocol=LL --op max --dtype bfloat16",
        "gc3 run ring_allreduce:R=3 --size 1KiB --engine threads:seed=7,slots=2",
        "gc3 run ring_allreduce:R=4 --engine processes",
        "gc3 run allreduce:R=4 --size 64KiB",
        "gc3 run h.gc3 --engine cuda --size 64MiB",
        "gc3 run plan.json --size 64KiB",
        "gc3 run ring_allreduce:R=4,memory=direct",
    ],
)
@options.program_argument(unproven=True)
@options.script_arguments
@click.option("--size", type=sizes.Size(), default="1MiB", show_default=True, help="S: size of the largest buffer.")
@options.dtype_option
@options.op_option
@options.no_check_option
@options.engine_option()
@options.json_option
def run(
    spec: options.Asked, size: int, dtype: str, op: str, no_check: bool, engine: options.Engine, as_json: bool
) -> int:
    """Run the program X on data.

    It runs once, on generated data.

    X is a compiled program (.gc3, or .xml for MSCCL runtimes), an algorithm of `gc3 list`, PATH.py:FUNCTION, or
    PATH.json in the form of SCCL-style synthesizers. Or a collective: then the program runs that the table of `gc3
    tune` for this engine, or else the default table, has for calls of this size on so many ranks: allreduce:R=4.

    Or it is an execution plan of MSCCL++ (PLAN.json), the text of another one-sided program, or an algorithm with
    memory=direct, on the engines of threads and cuda: with as many tiles of its pipelines as the size needs, unless
    PLAN.json:tiles=N says another number.

    Unless --no-check is given, the data consists of small whole numbers whose sums are exact in every type. So the
    result is compared for equality with the collective's result as computed by NumPy.

    --size is S as nccl-tests defines it, the largest buffer of a rank: 64MiB and 64M are 64 * 2^20 bytes,
    64MB is 64 * 10^6. A size that does not divide into blocks of whole elements is rounded down, with a
    note.
    """
    check, prove = not no_check, spec.how.prove
    direct = one_sided.load(spec)
    programs: Sequence[Program | DirectProgram]
    chosen: Selected | None = None
    with output.never_silent(f"running {spec.name}"):
        if direct is not None:
            one_sided.check_options(engine)
            direct = direct.for_size(spec, size, dtype)
            programs = [direct]
        else:
            programs, engine, chosen = _programs(spec, engine, size)
        if not check:
            programs = programs[:1]  # one mode runs; the check covers all modes that the file is for
        program = programs[0]
        _prove(programs, engine, prove=prove)
        count, rounding = sizes.fit(program.collective, size, dtype)
        with engines.timer(engine, chosen.thresholds if chosen else ()) as timer:
            runs = [_run_case(each, Case(each.collective, count, dtype, op), timer, check=check) for each in programs]
    seconds, _ = runs[0]
    checks = [(each, compared) for each, (_, compared) in zip(programs, runs, strict=True) if compared is not None]
    ok = all(compared.ok for _, compared in checks)
    actual = collectives.size_for(program.collective, count, datatypes.dtype(dtype).itemsize)
    outside = report.outside_use(program, [actual]) if isinstance(program, Program) else None
    notes = [note for note in (rounding, outside) if note is not None]
    timing = measure.summarize(program.collective, actual, [seconds], None)
    if as_json:
        data = {
            "program": program.info() if direct is None else direct.info(),
            "engine": engine.name,
            "chosen_by": chosen.explanation.source if chosen else None,
            "use": report.use_data(program) if isinstance(program, Program) else None,
            "proven": prove,
            "size": actual,
            "count": count,
            "dtype": dtype,
            "op": op,
            "time_us": timing.time_us,
            "algbw": timing.algbw,
            "busbw": timing.busbw,
            "check": _check_data(checks),
            "notes": notes,
        }
        output.emit(data)
        return 0 if ok else 1
    for note in notes:
        output.remark(note)
    if chosen:
        click.echo("\n".join(str(chosen.explanation).splitlines()[:2]))
    click.echo(report.describe(program) if isinstance(program, Program) else _describe(direct, actual))
    reduction = f" {op}" if collectives.reduces(program.collective) else ""
    click.echo(
        f"ran {sizes.format_size(actual)} of {dtype}{reduction} in {timing.time_us / 1000:.3f} ms: "
        f"algbw {timing.algbw:.2f} GB/s, busbw {timing.busbw:.2f} GB/s (one run, not warmed up)"
    )
    for each, compared in checks:
        _tell(compared, each, proven=prove, mode=report.mode_name(each) if len(checks) > 1 else "")
    return 0


def _prove(programs: Sequence[Program | DirectProgram], engine: options.Engine, *, prove: bool) -> None:
    """Proves programs of messages, or trusts them; others are proven when they first run."""
    for program in programs:
        if isinstance(program, DirectProgram):
            if not prove:
                raise click.UsageError("prove=no: a one-sided program is proven before it runs")
        elif prove:
            with output.working("proving"):
                verify(program, slots=engine.options.slots)
        else:
            program.trust()


def _describe(direct: one_sided.OneSided | None, size: int) -> str:
    assert direct is not None  # noqa: S101  the program is one-sided
    direct.remark(size)
    return direct.describe()


def _programs(
    spec: options.Asked, engine: options.Engine, size: int
) -> tuple[list[Program], options.Engine, Selected | None]:
    """The programs of X, and how to run them; if X is a collective, the choice of the program."""
    if not target.is_collective(spec.name, spec.how):
        return target.modes(spec.name, spec.how, slots=engine.options.slots), engine, None
    if engine.name == "cuda":
        told = f"'{spec.name}' is a collective: tables are for CPUs, so name a program for --engine cuda"
        raise click.UsageError(told)
    chosen = target.selected(spec.name, spec.how, size=size, engine=engine.name)
    given, fifos = engine.options, chosen.options
    run_with = replace(given, slots=given.slots or fifos.slots, slot_bytes=given.slot_bytes or fifos.slot_bytes)
    return [chosen.program], replace(engine, options=run_with), chosen


def _run_case(
    program: Program | DirectProgram, case: Case, timer: Timer, *, check: bool
) -> tuple[float, Comparison | None]:
    with output.working("making data"):
        inputs, outputs = case.inputs(), case.poisoned_outputs()
    arguments: dict[str, Any] = {"count": case.count, "dtype": case.dtype, "op": case.op, "warmup": 0, "iterations": 1}
    with output.working("running"):
        (seconds,) = timer(program, inputs, outputs=outputs, **arguments)
    if not check:
        return seconds, None
    with output.working("comparing with NumPy"):
        compared = case.compare(inputs, outputs)
        return seconds, case.further(compared, lambda i, o: timer(program, i, outputs=o, **arguments))


def _check_data(checks: Sequence[tuple[Program | DirectProgram, Comparison]]) -> dict[str, Any] | None:
    """The comparisons of all modes: the first that failed, or the first."""
    if not checks:
        return None
    modes = [{"in_place": each.in_place, "ok": compared.ok, **asdict(compared)} for each, compared in checks]
    shown = next((mode for mode in modes if not mode["ok"]), modes[0])
    return {**{key: value for key, value in shown.items() if key != "in_place"}, "modes": modes}


def _tell(compared: Comparison, program: Program | DirectProgram, *, proven: bool, mode: str) -> None:
    ranks = counted(program.ranks, "rank")
    if compared.ok:
        where = f" {mode}" if mode else ""
        click.secho(f"checked {compared.elements} elements of {ranks}{where}: all equal to NumPy's", fg="green")
        return
    # If a proven program gives a wrong result, the engine is defective, not the program.
    code = "Internal" if proven else "WrongResult"
    found: list[str] = []
    if compared.first is not None:
        first = compared.first
        found.append(
            f"{compared.wrong} of {compared.elements} elements differ, the first in the output of rank "
            f"{first.rank} at index {first.index}: expected {first.expected}, got {first.got}"
        )
    found += [f"the input of rank {rank} was changed" for rank in compared.changed_inputs]
    raise errors.error(code, "; ".join(found))
