"""gc3 compile."""

from __future__ import annotations

import click

from gc3.cli import options, output, report, target
from gc3.cli.command import Command
from gc3.lang.build import STAGES
from gc3.program import verify


@click.command(
    "compile",
    cls=Command,
    examples=[
        "gc3 compile hierarchical_allreduce -D N=2 -D G=3 -o h.gc3",
        "gc3 compile ring_allreduce -D R=8 --instances 4 --protocol LL128 -o ring.gc3",
        "gc3 compile examples/my_allgather.py:ring -D R=4 --dump schedule",
        "gc3 compile two_step_alltoall -D N=2 -D G=2 --dump ir",
    ],
)
@click.argument("spec", metavar="X")
@options.compile_options
@click.option("--output", "-o", "path", metavar="FILE", help="Where to write the program; by custom FILE.gc3.")
@click.option(
    "--slots",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="FIFO slots per connection the schedule may rely on.  [default: 2]",
)
@click.option("--dump", type=click.Choice(STAGES), help="Print a stage of the compilation instead.")
@click.option("--text", "as_text", is_flag=True, help="Print the program's text form.")
@options.json_option
def compile_command(
    spec: str,
    path: str | None,
    slots: int,
    dump: str | None,
    as_text: bool,
    as_json: bool,
    how: options.CompileOptions,
) -> None:
    """Compile the algorithm X and prove it.

    The result is one schedule per rank, checked against the collective and written to a file.

    X is an algorithm of `gc3 list`, or PATH.py:FUNCTION.
    """
    if target.is_program(spec):
        raise click.UsageError(f"'{spec}' is compiled already; `gc3 show {spec}` prints it")
    if dump is not None:
        text = target.dumped(spec, dump, how, slots=slots)
        if as_json:
            output.emit({"stage": dump, "text": text})
        else:
            click.echo(text, nl=not text.endswith("\n"))
        return
    program = target.compiled(spec, how, slots=slots)
    with output.working("proving"):
        proof = verify(program, max_threadblocks=how.max_threadblocks or 0)
    if path is not None:
        program.save(path)
    if as_json:
        data = {"program": program.info(), "proof": report.proof_data(proof), "file": path}
        output.emit(data | ({"text": program.text} if as_text else {}))
        return
    if as_text:
        click.echo(program.text, nl=False)
        return
    click.echo(report.describe(program))
    click.echo(report.proof_text(program, proof))
    if path is not None:
        click.echo(f"written to {path}")
    else:
        output.remark("nothing is written: add -o FILE.gc3, or --text to see the program")
