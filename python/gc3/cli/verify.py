"""gc3 verify."""

from __future__ import annotations

from dataclasses import replace

import click

from gc3 import topologies
from gc3.cli import options, output, report, target
from gc3.cli.command import Command
from gc3.program import verify


@click.command(
    "verify",
    cls=Command,
    examples=[
        "gc3 verify h.gc3",
        "gc3 verify h.gc3 --slots 1",
        "gc3 verify allreduce-8-ranks.xml",
        "gc3 verify custom.xml --collective alltonext",
        "gc3 verify ring_allreduce -D R=8 --max-threadblocks 4",
        "gc3 verify broken.gc3 --max-findings 100 --json",
        "gc3 verify h.gc3 --topology ndv4:N=2",
    ],
)
@click.argument("spec", metavar="X")
@options.compile_options
@click.option(
    "--slots",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Prove freedom from deadlock for so many FIFO slots per connection.  [default: X's own]",
)
@click.option("--max-channels", type=click.IntRange(min=0), default=0, metavar="N", help="Most channels.")
@click.option(
    "--max-findings",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    metavar="N",
    help="Stop after so many findings.",
)
@click.option(
    "--topology",
    "-t",
    "machine",
    metavar="SPEC",
    help="Also check that every send has a path there: a name of `gc3 topo list`, NAME:N=2, or FILE.json.",
)
@options.json_option
def verify_command(
    spec: str,
    slots: int,
    max_channels: int,
    max_findings: int,
    machine: str | None,
    as_json: bool,
    how: options.CompileOptions,
) -> int:
    """Prove the program X, or say what is wrong with it.

    Proven are: the structure; that every receive meets its send, in order; that every output holds what the
    collective demands; that no two accesses race; and that it cannot deadlock with the given FIFO slots.

    X is a compiled program (.gc3, or .xml as MSCCL runtimes read it), an algorithm of `gc3 list`,
    PATH.py:FUNCTION, or PATH.json as SCCL-style synthesizers write it.
    """
    limit = how.max_threadblocks or 0
    if target.is_program(spec):
        how = replace(how, max_threadblocks=None)  # a limit to check here, not an option of compiling
    topology = None if machine is None else topologies.load(machine)
    program = target.compiled(spec, how)
    with output.working("proving"):
        found = verify(
            program,
            slots=slots,
            max_threadblocks=limit,
            max_channels=max_channels,
            max_diagnostics=max_findings,
            check=False,
        )
    if topology is not None:
        pathless = topologies.check(program, topology, max_diagnostics=max_findings, check=False)
        found = replace(found, diagnostics=(*found.diagnostics, *pathless))
    if as_json:
        use = report.use_data(program)
        output.emit({"program": program.info(), "use": use, "topology": machine, **report.proof_data(found)})
    else:
        click.echo(report.describe(program))
        if found.ok:
            click.echo(report.proof_text(program, found))
            if topology is not None:
                click.echo(f"every send has a path on {machine}")
        else:
            report.print_findings(found, max_findings)
    return 0 if found.ok else 1
