"""gc3 nccl."""

from __future__ import annotations

import dataclasses
import os
import shlex
import shutil
from collections.abc import Mapping
from typing import Any

import click

from gc3 import nccl as overlay
from gc3.cli import options, output
from gc3.cli.command import Command
from gc3.support.words import counted

_programs = click.option(
    "--programs",
    metavar="PATH",
    help="The programs that serve calls: a folder of `gc3 table export`, or one program.",
)
_tuner = click.option(
    "--tuner",
    metavar="FILE.csv",
    help="What NCCL chooses for the calls that it serves: a file of `gc3 tune --nccl-tuner`. For NCCL 2.28 and newer.",
)
_log = click.option("--log", metavar="FOLDER", help="Where processes write what served their calls.")


@click.group("nccl", short_help="Run programs behind NCCL's API.")
def nccl() -> None:
    """Put GC3's programs behind NCCL's API, for programs that call NCCL."""


@nccl.command(
    "env",
    cls=Command,
    short_help="Print the variables that do it.",
    examples=[
        "gc3 nccl env --programs programs",
        "gc3 nccl env --folder in-front",
        "gc3 nccl env --tuner ndv4.csv",
    ],
)
@_programs
@_tuner
@_log
@click.option(
    "--folder",
    metavar="FOLDER",
    help="Make FOLDER with a libnccl.so.2, for programs that find NCCL by its folder, and do not preload.",
)
@options.json_option
def env(programs: str | None, tuner: str | None, log: str | None, folder: str | None, as_json: bool) -> None:
    """Print the variables that put GC3's library in front of NCCL, for a shell.

    Unsetting them is all that removes it.
    """
    made = overlay.environment(programs, log, folder, tuner)
    if as_json:
        output.emit(made)
        return
    click.echo("\n".join(_exports(made)))


def _exports(variables: Mapping[str, str]) -> list[str]:
    """Lines for a shell. What LD_PRELOAD has already remains."""
    lines: list[str] = []
    for name, value in variables.items():
        more = f'"${{{name}:+:${name}}}"' if name in overlay.PATHS else ""
        lines.append(f"export {name}={shlex.quote(value)}{more}")
    return lines


@nccl.command(
    "run",
    cls=Command,
    short_help="Start a program with them.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    examples=["gc3 nccl run --programs programs -- torchrun --nproc-per-node 8 train.py"],
)
@_programs
@_tuner
@_log
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def run(programs: str | None, tuner: str | None, log: str | None, command: tuple[str, ...]) -> None:
    """Start COMMAND with GC3's library in front of NCCL."""
    if shutil.which(command[0]) is None:
        raise click.UsageError(f"there is no program '{command[0]}'")
    lines = [*_exports(overlay.environment(programs, log, tuner=tuner)), 'exec "$@"']
    os.execv("/bin/sh", ["sh", "-c", "\n".join(lines), "sh", *command])  # noqa: S606  arguments are not for the shell


@nccl.command(
    "explain",
    cls=Command,
    short_help="Show what served the calls of a job.",
    examples=["gc3 nccl explain logs", "gc3 nccl explain logs --json"],
)
@click.argument("folder")
@options.json_option
def explain(folder: str, as_json: bool) -> None:
    """Show which calls were served by what, from the logs of the processes of a job."""
    logs = overlay.read_logs(folder)
    if as_json:
        processes: list[dict[str, Any]] = [
            {
                "host": log.host,
                "process": log.process,
                "nccl": log.nccl,
                "calls": [dataclasses.asdict(s) for s in log.served],
                "reasons": [{"function": f, "why": why, "calls": n} for f, why, n in log.reasons],
            }
            for log in logs
        ]
        output.emit({"processes": processes})
        return
    for log in logs:
        click.echo(f"process {log.process} of {log.host}, above {log.nccl}")
        for s in log.served:
            time = f", {s.host_ns / s.calls / 1000:.1f} us of the host for each" if s.host_ns else ""
            counts = f"{s.counts[0]} to {s.counts[1]} elements"
            click.echo(f"  {s.function:<18} {counts:<32} {counted(s.calls, 'call')} by {s.by}{time}")
        for function, why, calls in log.reasons:
            click.echo(f"  {function:<18} left to NCCL in {counted(calls, 'call')}: {why}")
        if not log.served and not log.reasons:
            click.echo("  no calls")
