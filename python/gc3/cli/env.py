"""gc3 env."""

from __future__ import annotations

import os
import platform
import sys
from importlib import metadata

import click

from gc3 import __version__
from gc3.cli import options, output


@click.command("env")
@options.json_option
def env(as_json: bool) -> None:
    r"""Show versions and the machine, to go with a report of a defect.

    \b
    Examples:
      gc3 env
      gc3 env --json
    """
    data = {
        "gc3": __version__,
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in ("numpy", "ml_dtypes", "click", "rich")},
        "system": platform.platform(),
        "machine": platform.machine(),
        "cores": len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count(),
    }
    if as_json:
        output.emit(data)
        return
    for name, value in data.items():
        click.echo(f"{name:>10}  {value}")
