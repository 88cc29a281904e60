"""Options that name a machine to simulate on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from gc3.cli import completion
from gc3.topologies import Topology, load
from gc3.topologies.without import parse, without

_PLACE = "A name of `gc3 topo list`, NAME:N=2, or FILE.json."
_DETAILS = (
    click.option("--nodes", type=click.IntRange(min=1), metavar="N", help="Nodes of the machine: its parameter N."),
    click.option(
        "--preset",
        metavar="NAME",
        help="Rates of ranks and protocols: a name, or a FILE.json of gc3 sim calibrate.  [default: the machine's]",
    ),
)


def machine_option(
    what: str, name: str = "machine", *, required: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Returns the option --topology, which says `what`, as the argument `name` of a command."""
    return click.option(
        "--topology", "-t", name, required=required, metavar="SPEC", shell_complete=completion.machines, help=what
    )


def machine_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a command the options --topology (required), --nodes and --preset."""
    return _with_machine(command, required=True)


def optional_machine_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a command the options --topology, --nodes and --preset."""
    return _with_machine(command, required=False)


def _with_machine(command: Callable[..., Any], *, required: bool) -> Callable[..., Any]:
    for option in (*reversed(_DETAILS), machine_option(_PLACE, required=required)):
        command = option(command)
    return command


def load_machine(spec: str, nodes: int | None, lost: Sequence[str] = ()) -> Topology:
    """Returns the topology that --topology and --nodes name, without the links and ranks that it has `lost`."""
    found = load(spec) if nodes is None else load(spec, N=nodes)
    return without(found, *parse("+".join(lost))) if lost else found
