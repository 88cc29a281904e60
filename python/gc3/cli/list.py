"""gc3 list."""

from __future__ import annotations

import textwrap
from typing import Any

import click

from gc3 import collectives
from gc3.algorithms import catalogue, load
from gc3.cli import completion, options, output
from gc3.cli.command import Command
from gc3.lang import Algorithm

_MOST_COLUMNS = 120
_LEAST_ROOM = 20  # columns for the purpose beside the name and the parameters
_USUAL_PARAMETERS = 17  # columns for them; a row with longer ones has less room for its purpose


@click.command(
    "list",
    cls=Command,
    long=True,
    examples=[
        "gc3 list",
        "gc3 list ring_allreduce",
        "gc3 list --collective allreduce",
        "gc3 list --json",
    ],
)
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=completion.programs)
@click.option(
    "--collective",
    type=click.Choice([*collectives.BUILTIN, "custom"]),
    metavar="NAME",
    help="Only algorithms for this collective, such as allreduce; custom: for custom collectives.",
)
@options.json_option
def list_command(names: tuple[str, ...], collective: str | None, as_json: bool) -> None:
    """List the algorithms that come with gc3; with NAME, show one in detail.

    All of them can be compiled, verified, run and timed by name. NAME may also be PATH.py:FUNCTION or PATH.json.
    """
    with output.apart():
        known = {name: load(name) for name in names} if names else catalogue()
    found = {name: a for name, a in known.items() if collective in (None, a.collective_name)}
    if as_json:
        output.emit({"algorithms": [_data(a) for a in found.values()]})
        return
    if not found:
        output.remark(f"no algorithm implements '{collective}'")
    elif names:
        for name, algorithm in found.items():
            _print_record(name, algorithm)
    else:
        _print_overview(list(found.values()))


def _columns() -> int:
    return output.columns(_MOST_COLUMNS)


def _print_overview(found: list[Algorithm]) -> None:
    """A line for each: its name, its parameters, and when to use it."""
    widest = max(len(a.name) for a in found)
    usual = min(max(len(_takes(a)) for a in found), _USUAL_PARAMETERS)
    for collective in [*collectives.BUILTIN.values(), None]:
        rows = [a for a in found if a.collective_name == (collective.name if collective else "custom")]
        if not rows:
            continue
        title = f"{collective.name}: {collective.summary}" if collective else "custom collectives"
        click.secho(textwrap.fill(title, _columns()), bold=True)
        for a in rows:
            name = click.style(a.name, fg="cyan") + " " * (widest - len(a.name))
            takes = _takes(a).ljust(usual)
            room = _columns() - widest - len(takes) - 6
            narrow = room < _LEAST_ROOM
            purpose = textwrap.shorten(
                a.good_for.partition(":")[0], _columns() - 6 if narrow else room, placeholder=" ..."
            )
            if narrow:
                click.echo(f"  {name.rstrip()}\n    {takes.rstrip()}\n    {purpose}")
            else:
                click.echo(f"  {name}  {takes}  {purpose}")
    last = "gc3 list NAME shows one in detail: what it does, its cost, and its source."
    click.echo(textwrap.fill(last, _columns()))


def _takes(algorithm: Algorithm) -> str:
    return " ".join(p.name if p.default is None else f"{p.name}={p.default}" for p in algorithm.parameters)


def _print_record(spec: str, algorithm: Algorithm) -> None:
    mode = {None: ", in place or not", True: ", in place", False: ""}[algorithm.in_place]
    click.echo(f"{click.style(algorithm.name, bold=True)}  {algorithm.collective_name}{mode}")
    details = [algorithm.summary, f"Good for {algorithm.good_for}." if algorithm.good_for else ""]
    for text in (*details, _traffic(algorithm), f"See {algorithm.section}." if algorithm.section else ""):
        if text:
            click.echo(textwrap.fill(text, _columns(), initial_indent="    ", subsequent_indent="    "))
    given = ",".join(f"{p.name}=..." for p in algorithm.parameters if p.default is None)
    extra = [f"{p.name}={p.default}" for p in algorithm.parameters if p.default is not None]
    if extra:
        click.echo(f"    Further parameters: {', '.join(extra)}.")
    click.secho(f"    gc3 compile {spec}{':' if given else ''}{given}", fg="cyan")


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
