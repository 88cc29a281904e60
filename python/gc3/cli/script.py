"""``python -m gc3.mscclang``: runs a script of MSCCLang as ``python`` would, and proves its programs."""

from __future__ import annotations

import sys

import click

from gc3 import errors, mscclang
from gc3.cli import output, report
from gc3.cli.blamed import blaming
from gc3.cli.main import Script
from gc3.runtime.program import verify


@click.command(
    "python -m gc3.mscclang",
    cls=Script,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    examples=["python -m gc3.mscclang allreduce_ring.py 8 1 >ring.xml"],
)
@click.argument("path", metavar="SCRIPT.py")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARG]...")
def main(path: str, arguments: tuple[str, ...]) -> None:
    """Run a script written for msccl-tools, and prove its programs.

    The script prints what it prints: XML() writes MSCCL XML to standard output. The proofs follow on standard error.
    Nothing called msccl needs to be installed. `gc3 export SCRIPT.py -o FILE -- ARG...` writes other forms.
    """
    try:
        with open(path, "rb"):
            pass
    except OSError as problem:
        raise errors.error("FileUnreadable", f"'{path}': {problem.strerror}") from None
    try:
        programs = blaming(path, lambda: mscclang.run(path, arguments, prints_xml=True))
    except mscclang.ArgumentsRefused as refused:
        click.echo(f"'{path}' ended with exit status {refused}", err=True)
        sys.exit(2)
    click.echo(nl=False)
    if not programs:
        output.remark(f"{path} makes no program")
    for program in programs:
        for text, line in program.remarks.items():
            output.remark(f"{path}:{line}: {text}")
        compiled = blaming(path, program.compiled)
        proof = verify(compiled)
        click.echo(f"{report.describe(compiled)}\n{report.proof_text(compiled, proof)}", err=True)
