"""gc3 list."""

from __future__ import annotations

import shutil
import textwrap
from typing import Any

import click

from gc3.algorithms import catalogue
from gc3.cli import options, output
from gc3.cli.command import Command
from gc3.lang import Algorithm


@click.command(
    "list",
    cls=Command,
    examples=[
        "gc3 list",
        "gc3 list --collective allreduce",
        "gc3 list --json",
    ],
)
@click.option("--collective", metavar="NAME", help="Only algorithms for this collective.")
@options.json_option
def list_command(collective: str | None, as_json: bool) -> None:
    """List the algorithms that come with gc3.

    Any of them can be compiled, verified, run and timed by its name.
    """
    found = [a for a in catalogue().values() if collective in (None, a.collective_name)]
    if as_json:
        output.emit({"algorithms": [_data(a) for a in found]})
        return
    if not found:
        output.remark(f"no algorithm implements '{collective}'")
    width = min(shutil.get_terminal_size((100, 24)).columns, 110)
    for algorithm in found:
        mode = {None: ", in place or not", True: ", in place", False: ""}[algorithm.in_place]
        click.echo(f"{click.style(algorithm.name, bold=True)}  {algorithm.collective_name}{mode}")
        details = [algorithm.summary, f"Good for {algorithm.good_for}." if algorithm.good_for else ""]
        for text in (*details, _traffic(algorithm), f"See {algorithm.section}." if algorithm.section else ""):
            if text:
                click.echo(textwrap.fill(text, width, initial_indent="    ", subsequent_indent="    "))
        given = " ".join(f"-D {p.name}=..." for p in algorithm.parameters if p.default is None)
        extra = [f"{p.name}={p.default}" for p in algorithm.parameters if p.default is not None]
        if extra:
            click.echo(f"    Further parameters: {', '.join(extra)}.")
        click.secho(f"    gc3 compile {algorithm.name} {given}".rstrip(), fg="cyan")


def _traffic(algorithm: Algorithm) -> str:
    if algorithm.cost is None:
        return ""
    cost = algorithm.cost
    whole = "chunk" if str(cost.of) == "1" else "chunks"
    return f"Steps {cost.steps}; the busiest rank sends {cost.sent} of the {cost.of} {whole} that make up S."


def _data(algorithm: Algorithm) -> dict[str, Any]:
    return {
        "name": algorithm.name,
        "collective": algorithm.collective_name,
        "in_place": algorithm.in_place,
        "parameters": [
            {"name": p.name, "default": p.default, "required": p.default is None} for p in algorithm.parameters
        ],
        "section": algorithm.section,
        "summary": algorithm.summary,
        "good_for": algorithm.good_for,
        "steps": str(algorithm.cost.steps) if algorithm.cost else None,
        "sent": str(algorithm.cost.sent) if algorithm.cost else None,
        "sent_of": str(algorithm.cost.of) if algorithm.cost else None,
        "file": algorithm.file,
        "line": algorithm.line,
    }
