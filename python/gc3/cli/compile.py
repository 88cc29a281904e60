"""gc3 compile and gc3 export."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gc3 import _core, topologies
from gc3.cli import one_sided, options, output, report, target
from gc3.cli.command import Command, gathered
from gc3.cli.files import OutputFile, OutputFolder
from gc3.cli.machine import load_topology, machine_option
from gc3.cli.sizes import Size
from gc3.comm.export import entries, export_xml
from gc3.comm.selection import read_rows
from gc3.runtime.program import FORMS, Program, Report, verify
from gc3.support.words import counted

if TYPE_CHECKING:
    from gc3.topologies import Topology

_OWN = (".gc3", ".txt")
_FOREIGN = (".xml", ".plan.json")


def _of(endings: Sequence[str]) -> str:
    return ", ".join(f"{ending} {FORMS[ending]}" for ending in endings)


def _within(asked: options.Asked, topology: Topology | None) -> options.Asked:
    """Returns it for the machine's ranks and the threadblocks that its GPUs hold, if it is still to be compiled."""
    if topology is None or target.is_program(asked.name):
        return asked
    asked = target.fitting(asked, topology)
    return asked if asked.how.max_threadblocks else asked.changed(max_threadblocks=topology.threadblocks or None)


def _proven(asked: options.Asked, topology: Topology | None = None) -> list[tuple[Program, Report]]:
    """Compiles and proves programs, and that the machine, if one is given, can run them."""
    programs = target.modes(asked.name, asked.how)
    limit = asked.how.max_threadblocks or (0 if topology is None else topology.threadblocks)
    with output.working("proving"):
        if topology is not None:
            for program in programs:
                topologies.check(program, topology)
        return [(program, verify(program, max_threadblocks=limit)) for program in programs]


def _save(program: Program, path: str, **xml: Any) -> None:
    """Writes a program. Keeps the calls that its file allows it for, if the form can; otherwise prints a remark."""
    lost: list[str] = []
    if program.use is not None:
        if program.use.in_place and program.use.out_of_place:
            lost.append("the other mode, " + ("out of place" if program.in_place else "in place"))
        if path.endswith(".xml"):
            xml["min_bytes"] = xml["min_bytes"] or program.use.min_bytes
            xml["max_bytes"] = xml["max_bytes"] or program.use.max_bytes
        elif program.use.min_bytes or program.use.max_bytes:
            lost.append("the sizes that it is for")
    runtime = xml.get("target")
    with output.working(f"proving what {runtime} executes") if runtime else nullcontext():
        program.save(path, **xml)
    if lost:
        output.remark(f"{path} cannot keep what the original file states: {' and '.join(lost)}")


def _tell(proofs: list[tuple[Program, Report]], path: str | None, *, as_json: bool) -> None:
    program = proofs[0][0]
    if as_json:
        output.emit({"program": program.info(), "proof": report.proofs_data(proofs), "file": path})
        return
    click.echo(report.describe(program))
    report.print_proofs(proofs)
    if path is not None:
        click.echo(f"written to {path}")
    else:
        output.remark("nothing was written: add -o FILE.gc3; `gc3 show` prints the program")


@click.command(
    "compile",
    cls=Command,
    examples=[
        "gc3 compile hierarchical_allreduce:N=2,G=3 -o h.gc3",
        "gc3 compile ring_allreduce:R=8,instances=4,protocol=LL128 -o ring.gc3",
        "gc3 compile allpairs_allreduce:R=8 -t ndv4 -o a.gc3",
        "gc3 compile ring_allreduce:R=4,memory=direct -o ring.txt",
        "gc3 compile from_msccl_tools.xml -o f.gc3",
    ],
)
@options.program_argument()
@options.script_arguments
@click.option(
    "--output",
    "-o",
    "path",
    type=OutputFile(*_OWN, others="; gc3 export writes those of other runtimes"),
    metavar="FILE",
    help=f"File for the program: {_of(_OWN)}. `gc3 export` writes the forms of others.",
)
@machine_option(
    "For this machine: its R, N and G, as many threadblocks per rank as its GPUs hold, and a path for every send. A "
    "name of `gc3 topo list`, NAME:N=2, or FILE.json."
)
@options.json_option
def compile_command(spec: options.Asked, path: str | None, machine: str | None, as_json: bool) -> int:
    """Compile the algorithm X and prove it.

    The result is one schedule per rank, checked against the collective and written to a file.

    X is an algorithm of `gc3 list`, PATH.py:FUNCTION, or PATH.json in the form of SCCL-style synthesizers. Its
    parameters follow its name, and options of compiling: instances=N copies in parallel, each on its part of the data;
    protocol=LL, LL128, ... (Simple); in_place=yes or no (as it is written); max_threadblocks=N per rank; order=0+2+1:
    the ranks of each node in the order in which X has them; slots=N that the schedule may use per connection (2);
    fuse=no keeps a receive and the send of what it received apart; window=N: each rank posts N sends and receives at a
    time, as an MPI program; memory=direct makes a one-sided program, a .txt file: ranks load from each other's buffers
    and have no messages.

    A program that is already compiled (.gc3, .xml) is proven and written in another form; collective=NAME or
    PATH.py:NAME is that of an .xml file that does not name one (coll=custom). A script written for msccl-tools is run
    as it is; its own arguments follow after --.
    """
    direct = one_sided.load(spec)
    if direct is not None:
        if machine is not None:
            raise click.UsageError("--topology does not apply to a one-sided program")
        return one_sided.save(direct, path, as_json=as_json)
    topology = None if machine is None else load_topology(machine)
    if target.is_program(spec.name) and path is None:
        raise click.UsageError(f"'{spec.name}' is already compiled: give -o FILE to write it in another form")
    proofs = _proven(_within(spec, topology), topology)
    if path is not None:
        _save(proofs[0][0], path)
    _tell(proofs, path, as_json=as_json)
    return 0


@dataclass(frozen=True, slots=True)
class _Export:
    """The command line of gc3 export."""

    spec: options.Asked
    path: str
    dialect: str | None
    runtime: str | None
    min_bytes: int
    max_bytes: int
    ranks: tuple[int, ...] | None
    as_json: bool


@click.command(
    "export",
    cls=Command,
    examples=[
        "gc3 export allpairs_allreduce:R=8 -o a.xml --target azure --max-bytes 1MiB",
        "gc3 export from_msccl_tools.xml -o for_rccl.xml --dialect rccl",
        "gc3 export ring_allreduce:R=8 -o ring.plan.json",
        "gc3 export tuned.json -o xml --target rccl --ranks 8",
    ],
)
@options.program_argument()
@options.script_arguments
@click.option(
    "--output",
    "-o",
    "path",
    required=True,
    metavar="FILE|FOLDER",
    help=f"File for the program: {_of(_FOREIGN)}. Or the folder for a table.",
)
@click.option(
    "--target",
    "runtime",
    type=click.Choice(list(_core.xml_targets())),
    help="The runtime whose limits the XML must keep.  [default: no limits]",
)
@click.option(
    "--dialect",
    type=click.Choice(sorted(set(_core.xml_targets().values()))),
    help="The dialect of the XML.  [default: that of --target, or else msccl]",
)
@click.option("--min-bytes", type=Size(), default=0, help="Smallest whole buffer that the XML is for.")
@click.option(
    "--max-bytes", type=Size(least=1), default=0, help="Largest whole buffer that the XML is for.  [default: any]"
)
@click.option("--ranks", type=options.Counts(), metavar="N,...", help="Of a table.  [default: 1 to 8]")
@options.json_option
@gathered(_Export)
def export_command(given: _Export) -> int:
    """Write the program X, or a selection table, in a form of other runtimes.

    X is as in gc3 compile. MSCCL XML has two dialects: msccl for microsoft/msccl, rccl for RCCL and the Azure executor.
    With --target, the program that this runtime executes for the file is proven, too.

    Of a selection table TABLE.json, every row becomes a file in FOLDER for the runtime of --target, with its range of
    sizes.
    """
    spec, path = given.spec, given.path
    if spec.name.endswith(".json") and not path.endswith(_FOREIGN):
        return _export_table(given)
    if given.ranks is not None:
        raise click.UsageError("--ranks is for a table and a folder")
    OutputFile(*_FOREIGN, others="; gc3 compile writes those of GC3").convert(path, None, None)
    xml = {
        "dialect": given.dialect,
        "target": given.runtime,
        "min_bytes": given.min_bytes,
        "max_bytes": given.max_bytes,
    }
    if any(xml.values()) and not path.endswith(".xml"):
        raise click.UsageError("--target, --dialect, --min-bytes and --max-bytes are for a file that ends in .xml")
    direct = one_sided.load(spec)
    if direct is not None:
        return one_sided.save(direct, path, as_json=given.as_json)
    proofs = _proven(spec)
    _save(proofs[0][0], path, **xml)
    _tell(proofs, path, as_json=given.as_json)
    return 0


def _export_table(given: _Export) -> int:
    target_name, ranks = given.runtime, given.ranks or tuple(range(1, 9))
    if target_name is None or given.dialect or given.min_bytes or given.max_bytes or given.spec.text != given.spec.name:
        raise click.UsageError("a table needs --target, and its rows have the sizes: leave out other options of XML")
    folder = OutputFolder().convert(given.path, None, None)
    rows = read_rows(given.spec.name)
    count = len(entries(rows, ranks))
    if count == 0:
        raise click.UsageError(
            f"'{given.spec.name}' has no row for {', '.join(map(str, ranks))} ranks: choose by --ranks"
        )
    with output.progress("writing", count, printing=False) as begin:
        written, refused = export_xml(rows, ranks, target_name, Path(folder), begin)
    if given.as_json:
        output.emit({"folder": folder, "ranks": ranks, "files": [path.name for path in written], "refused": refused})
    else:
        for text in refused:
            output.remark(f"{target_name} cannot run {text}")
        click.echo(f"{counted(len(written), 'file')} in {folder}")
    return 0 if written else 1
