"""gc3 env."""

from __future__ import annotations

import os
import platform
import sys
import textwrap
from importlib import metadata
from typing import Any

import click

from gc3 import __version__, _core, errors
from gc3.cli import options, output
from gc3.cli.command import Command
from gc3.comm import kept
from gc3.comm.probing import kept_probes, probe
from gc3.support import knobs
from gc3.torch import native


@click.command(
    "env",
    cls=Command,
    long=True,
    examples=[
        "gc3 env",
        "gc3 env --json",
        "gc3 env --probe",
    ],
)
@click.option(
    "--probe", "probed", is_flag=True, help="Also start two ranks, which measure how messages move between them."
)
@options.json_option
def env(probed: bool, as_json: bool) -> None:
    """Show versions, machine and settings.

    Include the output in a report of a defect. The settings are environment variables; an option wins over them.
    """
    data = {
        "gc3": __version__,
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in ("numpy", "ml_dtypes", "click", "rich")},
        "system": platform.platform(),
        "machine": platform.machine(),
        "cores": len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count(),
    }
    data["memory"] = _core.host_memory()
    if probed:
        data["processes"] = probe()
    now = knobs.read()
    measured = kept_probes()
    for engine, name in (("processes", "table"), ("threads", "threads")):
        tuned = kept.path(engine)
        data[name] = f"table {tuned}" if tuned is not None and tuned.exists() else "no table kept for this machine"
    data["torch"] = _torch()
    settings: dict[str, dict[str, Any]] = {
        knob.variable: {"value": _shown(knob, getattr(now, knob.field)), "default": knob.initial, "doc": knob.doc}
        for knob in knobs.table()
    }
    if as_json:
        output.emit(data | {"measured": measured, "settings": settings})
        return
    for name, value in data.items():
        click.echo(f"{name:<11}  {value}")
    if measured:
        click.echo("\nmeasurements of how messages move between processes, by GC3_PROBE")
    for line in measured:
        click.echo(textwrap.fill(line, output.columns(), subsequent_indent="    ", break_long_words=False))
    click.echo("\nsettings, and what they mean")
    for variable, about in settings.items():
        click.echo(f"{variable}={about['value']}")
        click.echo(textwrap.fill(about["doc"], output.columns(), initial_indent="    ", subsequent_indent="    "))


def _torch() -> str:
    try:
        version = metadata.version("torch")
    except metadata.PackageNotFoundError:
        return "not installed"
    try:
        return f"{version}; the backend gc3 is {native.expected()[1]}"
    except errors.Gc3Error as problem:
        return f"{version}; {problem}"


def _shown(knob: knobs.KnobInfo, value: object) -> object:
    """A value in a form that may be included in a report of a defect."""
    return "(set, not shown)" if knob.unit.startswith("secret") and value else value
