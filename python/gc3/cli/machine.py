"""The option that names a machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from gc3 import errors
from gc3.cli import completion
from gc3.support.words import split_values
from gc3.topologies import Topology, load

PLACE = (
    "A name of `gc3 topo list` or FILE.json, and what follows it: ndv4:N=2 for two nodes, without=0-1+3 for lost links "
    "and ranks, preset=NAME or FILE.json of `gc3 sim calibrate` for other rates of ranks and protocols."
)


def machine_option(
    what: str = PLACE, name: str = "machine", *, required: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Returns the option --topology, which says `what`, as the argument `name` of a command."""
    return click.option(
        "--topology",
        "-t",
        name,
        required=required,
        metavar="NAME[:KEY=VALUE,...]",
        shell_complete=completion.machines,
        help=what,
    )


def split_preset(spec: str) -> tuple[str, str | None]:
    """Returns the topology that --topology names, and the preset; None: the machine's own.

    >>> split_preset("ndv4:N=2,preset=mine.json")
    ('ndv4:N=2', 'mine.json')
    """
    try:
        name, values = split_values(spec)
    except ValueError:
        return spec, None  # the topologies say what is wrong
    preset = values.pop("preset", None)
    rest = ",".join(f"{key}={value}" for key, value in values.items())
    return f"{name}:{rest}" if rest else name, preset


def load_topology(spec: str) -> Topology:
    """Returns the machine that --topology names where nothing is simulated."""
    topology, preset = split_preset(spec)
    if preset is not None:
        raise errors.error("BadArgument", f"'{spec}': nothing is simulated here: leave out preset={preset}")
    return load(topology)
