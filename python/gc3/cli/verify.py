"""gc3 verify."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import click

from gc3 import _core, errors, topologies
from gc3.cli import one_sided, options, output, report, target
from gc3.cli.command import Command
from gc3.cli.machine import load_topology, machine_option
from gc3.collectives import rooted
from gc3.runtime import targets
from gc3.runtime.program import Program, Report, verify
from gc3.support.words import counted


@click.command(
    "verify",
    cls=Command,
    examples=[
        "gc3 verify h.gc3",
        "gc3 verify h.gc3 --slots 1",
        "gc3 verify allreduce-8-ranks.xml",
        "gc3 verify allreduce-8-ranks.xml --target rccl",
        "gc3 verify custom.xml:collective=alltonext",
        "gc3 verify ring_allreduce:R=8,max_threadblocks=4",
        "gc3 verify broken.gc3 --max-findings 100 --json",
        "gc3 verify h.gc3 --topology ndv4:N=2",
        "gc3 verify plan.json",
        "gc3 verify plan.json:collective=allreduce",
    ],
)
@options.program_argument()
@options.script_arguments
@click.option(
    "--slots",
    type=click.IntRange(min=1),
    metavar="N",
    help="Prove freedom from deadlock for this many FIFO slots per connection.  [default: X's own]",
)
@click.option("--max-channels", type=click.IntRange(min=1), metavar="N", help="Most channels.  [default: any]")
@click.option(
    "--max-findings",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    metavar="N",
    help="Stop after this many findings.",
)
@machine_option(
    "Also check that every send has a path on this machine, and that its GPUs hold the threadblocks: a name of "
    "`gc3 topo list`, NAME:N=2, or FILE.json.",
)
@click.option(
    "--target",
    "runtime",
    type=click.Choice(targets.NAMES),
    help="Prove the program that this runtime executes for the .xml file.  [default: the meaning of the file]",
)
@options.json_option
def verify_command(
    spec: options.Asked,
    slots: int | None,
    max_channels: int | None,
    max_findings: int,
    machine: str | None,
    runtime: str | None,
    as_json: bool,
) -> int:
    """Prove the program X, or report what is wrong with it.

    The proof covers the structure; that every receive matches its send, in order; that every output has the value that
    the collective requires; that no two accesses race; and that the program cannot deadlock with the given FIFO slots.

    X is a compiled program (.gc3, or .xml for MSCCL runtimes), an algorithm of `gc3 list`, PATH.py:FUNCTION, or
    PATH.json in the form of SCCL-style synthesizers. If a file is for use in place and out of place, both are proven,
    unless in_place=yes or no selects one: h.xml:in_place=yes.

    For an all-to-all, an all-gather, a reduce-scatter, a gather or a scatter it also says whether the program serves
    blocks that differ in length, and if not, which step prevents it.

    With --target, the program that this runtime executes for the .xml file is proven; it may differ from the meaning of
    the file. If the runtime refuses the file, it is an error. Without --target, the verdict for a correct file also
    lists the result for each runtime.

    X may also be an execution plan of MSCCL++ (PLAN.json), the text of another one-sided program, or an algorithm with
    memory=direct. Successive calls are proven, with 1, 2 and 3 tiles of its pipelines, and more if semaphores let one
    be further ahead of another, at most 16, unless PLAN.json:tiles=N says a number.
    """
    direct = one_sided.load(spec)
    if direct is not None:
        given = {"--slots": slots, "--max-channels": max_channels, "--topology": machine, "--target": runtime}
        useless = [name for name, value in given.items() if value is not None]
        if useless:
            raise click.UsageError(f"{useless[0]} does not apply to a one-sided program")
        return _one_sided(direct.for_proof(spec), max_findings, as_json=as_json)
    topology = None if machine is None else load_topology(machine)
    spec = spec if topology is None else target.fitting(spec, topology)
    name, how = spec.name, spec.how
    limit, is_file = how.max_threadblocks or 0, target.is_program(name)
    if is_file:
        how = replace(how, max_threadblocks=None)  # a limit to check here, not an option of compiling
    verdicts: Sequence[targets.Verdict] = ()
    if runtime is not None:
        if slots or max_channels or limit:
            raise click.UsageError("--target sets the slots and limits of the runtime: leave out those options")
        proofs = _on(runtime, name, how, max_findings)
    else:
        if topology is not None and not limit:
            limit = topology.threadblocks
            how = how if is_file else replace(how, max_threadblocks=limit or None)
        programs = target.modes(name, how)
        prove = partial(
            verify,
            slots=slots or 0,
            max_threadblocks=limit,
            max_channels=max_channels or 0,
            max_diagnostics=max_findings,
            check=False,
        )
        with output.working("proving"):
            proofs = [(p, prove(p)) for p in programs]
            if is_file and all(found.ok for _, found in proofs):
                verdicts = targets.judge_all(name, collective=how.collective or "", in_place=how.in_place)
    if topology is not None:
        pathless = topologies.check(proofs[0][0], topology, max_diagnostics=max_findings, check=False)
        proofs = [(p, replace(found, diagnostics=(*found.diagnostics, *pathless))) for p, found in proofs]
    ok = all(found.ok for _, found in proofs)
    if as_json:
        program = proofs[0][0]
        about = {"program": program.info(), "use": report.use_data(program), "topology": machine, "target": runtime}
        on = {verdict.runtime: report.runtime_data(verdict) for verdict in verdicts}
        output.emit({**about, **report.proofs_data(proofs), "v_form": report.v_form_data(proofs), "runtimes": on})
    elif ok:
        _print(proofs, runtime, machine, verdicts)
    else:
        click.echo(report.describe(proofs[0][0]))
        report.print_findings(proofs, max_findings)
    return 0 if ok else 1


def _one_sided(cases: Sequence[one_sided.OneSided], max_findings: int, *, as_json: bool) -> int:
    """Proves a one-sided program for all numbers of tiles, or reports what is wrong with the first that is wrong."""
    direct, found = cases[0], cases[0].findings(max_findings)
    for each in cases[1:]:
        if not found:
            direct, found = each, each.findings(max_findings)
    tiles = [each.tiles for each in cases if each.looped]
    if as_json:
        data = {"program": direct.info(), "ok": not found, "tiles": [direct.tiles] if found and tiles else tiles}
        data["only_for_calls_of_this_plan"] = direct.alone
        output.emit({**data, "diagnostics": [output.diagnostic_data(d) for d in found]})
        return 1 if found else 0
    click.echo(direct.describe())
    if found:
        more = sum(d.code.startswith("GC3-V") for d in found) >= max_findings
        report.print_unproven(found, direct.of_tiles, more=more)
        return 1
    click.echo(direct.proven(tiles if len(tiles) > 1 else ()))
    return 0


def _print(
    proofs: Sequence[tuple[Program, Report]],
    runtime: str | None,
    machine: str | None,
    verdicts: Sequence[targets.Verdict],
) -> None:
    """Prints what has been proven."""
    program = proofs[0][0]
    click.echo(report.describe(program))
    report.print_proofs(proofs)
    report.print_v_form(proofs)
    if runtime is not None:
        click.echo(f"this is the program that {runtime} executes for the file, {_calls(program)}")
    if machine is not None:
        click.echo(f"every send has a path on {machine}")
    if verdicts:
        click.echo("the programs that runtimes execute for this file:")
    for verdict in verdicts:
        click.echo(report.runtime_line(verdict))


def _on(runtime: str, spec: str, how: options.CompileOptions, max_findings: int) -> Sequence[tuple[Program, Report]]:
    """Returns the programs that a runtime executes for a file, with the proofs."""
    if not target.is_program(spec):
        raise click.UsageError(f"--target is for a file of MSCCL XML; '{spec}' is an algorithm")
    useless = how.only_for_algorithms()
    if useless:
        raise click.UsageError(f"'{spec}' is compiled already: {', '.join(useless)} cannot change it")
    with output.working("proving"):
        verdict = targets.judge(
            spec,
            runtime,
            collective=how.collective or "",
            in_place=how.in_place,
            max_diagnostics=max_findings,
        )
    if verdict.refused:
        raise errors.UserError(*verdict.refused)
    return verdict.modes


def _calls(program: Program) -> str:
    """The calls that a runtime uses a file for, as far as the program does not state them."""
    chunks = _core.xml_chunks_per_loop(program.collective)
    root = f" with root {program.collective.root}, which it does not check," if rooted(program.collective) else ""
    return f"for calls{root} whose data it can divide into {counted(chunks, 'equal chunk')}"
