"""How commands describe programs, proofs and findings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import click

from gc3._core import Diagnostic
from gc3.cli.output import diagnostic_data, print_diagnostics, shown
from gc3.cli.sizes import format_size
from gc3.errors import UserError
from gc3.properties import describe as described
from gc3.runtime.direct import DirectProgram
from gc3.runtime.program import Program, Report, Use
from gc3.runtime.targets import Verdict
from gc3.support.words import counted

_MOST_OF_A_NAME = 60


def use_data(program: Program) -> dict[str, Any] | None:
    """Returns the calls that the program's file allows it for as plain data; None if it was compiled."""
    return None if program.use is None else asdict(program.use)


def use_text(program: Program) -> str:
    """Returns the calls that the file allows beyond the program's own mode and all sizes, as text; may be empty."""
    use = program.use
    if use is None:
        return ""
    parts = ["in place and out of place"] if use.in_place and use.out_of_place else []
    if use.min_bytes or use.max_bytes:
        upper = f"to {format_size(use.max_bytes)}" if use.max_bytes else "on"
        parts.append(f"buffers from {format_size(use.min_bytes)} {upper}")
    return f"the file allows it for {', '.join(parts)}" if parts else ""


def outside_use(program: Program, sizes: Sequence[int]) -> str | None:
    """Returns a remark if the file is not for some S of `sizes`."""
    use = program.use or Use(True, True)
    below = [size for size in sizes if size < use.min_bytes]
    above = [size for size in sizes if 0 < use.max_bytes < size]
    if not below and not above:
        return None
    from gc3.sim.trust import span  # noqa: PLC0415  slow to import, and few files have limits

    return f"the file is not meant for {', '.join(span(some) for some in (below, above) if some)}"


def describe(program: Program) -> str:
    """Returns the program in one line, and in a second line the calls that its file allows."""
    about = program.info()
    root = "" if about["root"] is None else f" from root {about['root']}"
    mode = "in place" if about["in_place"] else "out of place"
    totals = (counted(about[f"{what}s"], what) for what in ("instance", "threadblock", "instruction"))
    most = counted(about["max_threadblocks_per_rank"], "threadblock")
    name, collective = (shown(about[key], _MOST_OF_A_NAME) for key in ("name", "collective"))
    ranks = counted(about["ranks"], "rank")
    if "classes" in about:
        ranks = f"{about['ranks']:,} ranks in {counted(about['classes'], 'class')}"
    lines = (
        f"{name}: {collective}{root} of {ranks}, {mode}, "
        f"{about['protocol']}, {', '.join(totals)}; at most {most} on a rank",
        use_text(program),
    )
    return "\n".join(line for line in lines if line)


def causes(seconds: Mapping[str, float]) -> str:
    """Returns times by cause, with their shares of the total."""
    total = sum(seconds.values())
    return ", ".join(f"{cause} {1e6 * s:.2f} us ({100 * s / total:.0f}%)" for cause, s in seconds.items()) or "nothing"


def proof_data(report: Report) -> dict[str, Any]:
    """Returns the verifier's result as plain data."""
    return {
        "ok": report.ok,
        "slots": report.slots,
        "transfers": report.transfers,
        "diagnostics": [diagnostic_data(d) for d in report.diagnostics],
    }


def mode_name(program: Program | DirectProgram) -> str:
    """Returns the mode of a program as text."""
    return "in place" if program.in_place else "out of place"


def print_proofs(proofs: Sequence[tuple[Program, Report]]) -> None:
    """Prints the proofs of all modes of a file."""
    for program, report in proofs:
        click.echo(proof_text(program, report, mode_name(program) if len(proofs) > 1 else ""))


def proofs_data(proofs: Sequence[tuple[Program, Report]]) -> dict[str, Any]:
    """Returns the proofs of all modes of a file as plain data."""
    reports = [report for _, report in proofs]
    modes = [{"in_place": program.in_place, **proof_data(report)} for program, report in proofs]
    together = proof_data(replace(reports[0], diagnostics=tuple(d for r in reports for d in r.diagnostics)))
    return {**together, "modes": modes}


def proof_text(program: Program, report: Report, mode: str = "") -> str:
    """Returns the result of a proof as text."""
    declared = [(name, described(properties)) for name, properties in program.collective.operations]
    assumed = ", ".join(f"'{shown(name)}' is {said}" for name, said in declared if said)
    condition = f", if as declared {assumed}" if assumed else ""
    return (
        f"proven{f', {mode}' if mode else ''}: it implements {program.collective.name}, every receive has its send "
        f"({counted(report.transfers, 'transfer')} per tile), no data races, "
        f"no deadlock with {counted(report.slots, 'FIFO slot')} or more per connection{condition}"
    )


def _v_form(program: Program) -> str | None:
    """Why a program does not serve calls whose blocks differ in length; None if it does."""
    try:
        program.check_v_form()
    except UserError as problem:
        return problem.diagnostics[0].message
    return None


def print_v_form(proofs: Sequence[tuple[Program, Report]]) -> None:
    """Prints whether the programs serve the v-form of their collective, if it has one."""
    for program, _ in proofs:
        if program.collective.v_counts == 0 or not program.expands:
            continue
        mode = f", {mode_name(program)}" if len(proofs) > 1 else ""
        why = _v_form(program)
        if why is None:
            click.echo(f"serves {program.collective.name} of blocks of any lengths{mode}")
        else:
            click.echo(f"serves {program.collective.name} of equal blocks alone{mode}: {shown(why)}")


def v_form_data(proofs: Sequence[tuple[Program, Report]]) -> dict[str, Any] | None:
    """Returns whether proven programs of all modes serve the v-form; None if the collective has none."""
    programs = [program for program, report in proofs if report.ok and program.expands]
    if not programs or programs[0].collective.v_counts == 0:
        return None
    reasons = [_v_form(program) for program in programs]
    return {"ok": not any(reasons), "reason": next((why for why in reasons if why), None)}


def print_findings(proofs: Sequence[tuple[Program, Report]], most: int) -> None:
    """Prints the findings of failed proofs, at most `most` of each."""
    for program, report in proofs:
        if report.ok:
            continue
        mode = f" {mode_name(program)}" if len(proofs) > 1 else ""
        print_unproven(report.diagnostics, mode, more=len(report.diagnostics) >= most)


def print_unproven(findings: Sequence[Diagnostic], mode: str = "", *, more: bool) -> None:
    """Prints the findings of a proof; `more`: it stopped at so many."""
    print_diagnostics(findings)
    rest = " or more: see --max-findings" if more else ""
    click.secho(f"not proven{mode}: {counted(len(findings), 'finding')}{rest}", fg="red", bold=True, err=True)


def runtime_line(verdict: Verdict) -> str:
    """Returns in one line whether a runtime executes a file of MSCCL XML correctly."""
    if verdict.ok:
        return f"  {verdict.runtime}: proven " + " and ".join(mode_name(program) for program, _ in verdict.modes)
    first = verdict.diagnostics[0]
    kind = "refused" if verdict.refused else "wrong"
    return f"  {verdict.runtime}: {kind}: {first.code} {first.title}: {shown(first.message)}"


def runtime_data(verdict: Verdict) -> dict[str, Any]:
    """Returns the verdict on a file for a runtime as plain data."""
    return {
        "ok": verdict.ok,
        "refused": bool(verdict.refused),
        "modes": [{"in_place": program.in_place, **proof_data(report)} for program, report in verdict.modes],
        "diagnostics": [diagnostic_data(d) for d in verdict.diagnostics],
    }
