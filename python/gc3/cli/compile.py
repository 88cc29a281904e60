"""gc3 compile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import wraps
from typing import TYPE_CHECKING, TypeVar

import click

from gc3 import _core, topologies
from gc3.cli import completion, options, output, report, target
from gc3.cli.command import Command
from gc3.cli.files import OutputFile
from gc3.cli.machine import machine_option
from gc3.cli.sizes import Size
from gc3.lang.build import MOST, STAGES
from gc3.runtime.program import FORMS, Program, Report, verify

if TYPE_CHECKING:
    from gc3.topologies import Topology

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class XmlOptions:
    """Options for writing MSCCL XML."""

    dialect: str | None
    target: str | None
    min_bytes: int
    max_bytes: int

    def given(self) -> list[str]:
        """Returns the options that were given."""
        named = {
            "--dialect": self.dialect,
            "--target": self.target,
            "--min-bytes": self.min_bytes,
            "--max-bytes": self.max_bytes,
        }
        return [name for name, value in named.items() if value]


def xml_options(command: Callable[..., T]) -> Callable[..., T]:
    """Gives a command the options of MSCCL XML, as its argument `xml`."""

    @click.option(
        "--dialect",
        type=click.Choice(sorted(set(_core.xml_targets().values()))),
        help="The dialect of the XML.  [default: that of --target, or else msccl]",
    )
    @click.option(
        "--target",
        type=click.Choice(list(_core.xml_targets())),
        help="The runtime whose limits the XML must keep.  [default: no limits]",
    )
    @click.option("--min-bytes", type=Size(), default=0, help="Smallest whole buffer that the XML is for.")
    @click.option(
        "--max-bytes", type=Size(least=1), default=0, help="Largest whole buffer that the XML is for.  [default: any]"
    )
    @wraps(command)
    def with_xml(dialect: str | None, target: str | None, min_bytes: int, max_bytes: int, **others: object) -> T:
        return command(xml=XmlOptions(dialect, target, min_bytes, max_bytes), **others)

    return with_xml


def _within(how: options.CompileOptions, topology: Topology | None, spec: str) -> options.CompileOptions:
    """Returns `how` with as many threadblocks as the machine's GPUs hold, where the program is still to be compiled."""
    if topology is None or how.max_threadblocks or target.is_program(spec):
        return how
    return replace(how, max_threadblocks=topology.threadblocks or None)


def _proven(
    programs: Sequence[Program], how: options.CompileOptions, topology: Topology | None
) -> list[tuple[Program, Report]]:
    """Proves programs, and that the machine, if one is given, can run them."""
    limit = how.max_threadblocks or (0 if topology is None else topology.threadblocks)
    if topology is not None:
        for program in programs:
            topologies.check(program, topology)
    return [(program, verify(program, max_threadblocks=limit)) for program in programs]


def _save(program: Program, path: str, xml: XmlOptions) -> None:
    """Writes a program. Keeps the calls that its file allows it for, if the form can; otherwise prints a remark."""
    least, most = xml.min_bytes, xml.max_bytes
    lost: list[str] = []
    if program.use is not None:
        if program.use.in_place and program.use.out_of_place:
            lost.append("the other mode, " + ("out of place" if program.in_place else "in place"))
        if path.endswith(".xml"):
            least, most = least or program.use.min_bytes, most or program.use.max_bytes
        elif program.use.min_bytes or program.use.max_bytes:
            lost.append("the sizes that it is for")
    with output.working(f"proving what {xml.target} executes") if xml.target else nullcontext():
        program.save(path, dialect=xml.dialect, target=xml.target, min_bytes=least, max_bytes=most)
    if lost:
        output.remark(f"{path} cannot keep what the original file states: {' and '.join(lost)}")


@click.command(
    "compile",
    cls=Command,
    examples=[
        "gc3 compile hierarchical_allreduce -D N=2 -D G=3 -o h.gc3",
        "gc3 compile ring_allreduce -D R=8 --instances 4 --protocol LL128 -o ring.gc3",
        "gc3 compile examples/my_allgather.py:ring -D R=4 --dump schedule",
        "gc3 compile two_step_alltoall -D N=2 -D G=2 --dump ir",
        "gc3 compile allpairs_allreduce -D R=8 -o a.xml --target azure --max-bytes 1MiB",
        "gc3 compile from_msccl_tools.xml -o for_rccl.xml --dialect rccl",
    ],
)
@click.argument("spec", metavar="X", shell_complete=completion.programs)
@options.compile_options
@options.script_arguments
@click.option(
    "--output",
    "-o",
    "path",
    type=OutputFile(*FORMS),
    metavar="FILE",
    help=f"File for the program; its ending selects the form: {', '.join(f'{e} {what}' for e, what in FORMS.items())}.",
)
@click.option(
    "--slots",
    type=click.IntRange(1, MOST),
    metavar="N",
    help="FIFO slots per connection that the schedule may use.  [default: 2]",
)
@xml_options
@machine_option(
    "For this machine: as many threadblocks per rank as its GPUs hold, and a path for every send. A name of "
    "`gc3 topo list`, NAME:N=2, or FILE.json.",
)
@click.option("--dump", type=click.Choice(STAGES), help="Print a stage of the compilation instead.")
@click.option("--text", "as_text", is_flag=True, help="Print the program's text form.")
@options.json_option
def compile_command(
    spec: str,
    path: str | None,
    slots: int | None,
    machine: str | None,
    dump: str | None,
    as_text: bool,
    as_json: bool,
    how: options.CompileOptions,
    xml: XmlOptions,
) -> None:
    """Compile the algorithm X and prove it.

    The result is one schedule per rank, checked against the collective and written to a file.

    X is an algorithm of `gc3 list`, PATH.py:FUNCTION, or PATH.json in the form of SCCL-style synthesizers. A program
    that is already compiled (.gc3, .xml) is proven and written in another form. A script written for msccl-tools is run
    as it is; its own arguments follow after --.

    MSCCL XML has two dialects: msccl for microsoft/msccl, rccl for RCCL and the Azure executor. With --target, the
    program that this runtime executes for the file is proven, too.
    """
    if xml.given() and not (path or "").endswith(".xml"):
        raise click.UsageError(f"{', '.join(xml.given())}: only for a file to write that ends in .xml")
    topology = None if machine is None else topologies.load(machine)
    how = _within(how, topology, spec)
    if target.is_program(spec) and (dump is not None or slots):
        raise click.UsageError(f"'{spec}' is compiled already; `gc3 show {spec}` prints it")
    if target.is_program(spec) and path is None and not as_text:
        raise click.UsageError(f"'{spec}' is already compiled: give -o FILE to write it in another form")
    if dump is not None:
        text = target.dumped(spec, dump, how, slots=slots or 0)
        if as_json:
            output.emit({"stage": dump, "text": text})
        else:
            click.echo(text, nl=not text.endswith("\n"))
        return
    programs = target.modes(spec, how, slots=slots or 0)
    program = programs[0]
    with output.working("proving"):
        proofs = _proven(programs, how, topology)
    if path is not None:
        _save(program, path, xml)
    if as_json:
        data = {"program": program.info(), "proof": report.proofs_data(proofs), "file": path}
        output.emit(data | ({"text": program.text} if as_text else {}))
        return
    if as_text:
        click.echo(program.text, nl=False)
        return
    click.echo(report.describe(program))
    report.print_proofs(proofs)
    if path is not None:
        click.echo(f"written to {path}")
    else:
        output.remark("nothing was written: add -o FILE.gc3, or --text to see the program")
