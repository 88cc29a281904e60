"""The entry point: dispatches to the commands and turns every failure into one message and an exit code."""

from __future__ import annotations

import difflib
import errno
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from gc3 import __version__, errors
from gc3.cli import interrupt, output
from gc3.cli.command import Command
from gc3.support import knobs

FAILED = 1
_CANNOT_WRITE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)
BROKEN_PIPE = 141  # as a program that SIGPIPE ended


class _ReaderGone(Exception):  # noqa: N818  nobody's error
    """Standard output is a pipe that nobody reads any more."""


class Guarded(click.Command):
    """A command that turns every failure into one message and an exit code when it is run as a program."""

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command that the context names."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as problem:
            raise _ReaderGone from problem  # click would make an ordinary failure of it

    def main(  # pyright: ignore[reportIncompatibleMethodOverride]  click's overloads differ by standalone_mode
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        **extra: Any,
    ) -> None:
        """Runs a command and exits with its code."""
        given = list(sys.argv[1:] if args is None else args)
        debug, as_json = "--debug" in given, "--json" in given
        given = [argument for argument in given if argument != "--debug"]
        extra["standalone_mode"] = False
        for text in knobs.unknown():
            output.remark(text)
        try:
            code: Any = super().main(given, prog_name or "gc3", **extra)
            click.echo(nl=False)  # flushes standard output, if there is one
        except (_ReaderGone, BrokenPipeError):
            _forget_output()  # the reader has gone, as in `gc3 list | head`: nothing is left to be said
            code = BROKEN_PIPE
        except (click.Abort, KeyboardInterrupt):
            click.echo("interrupted", err=True)
            code = interrupt.INTERRUPTED
        except click.ClickException as problem:
            vars(problem)["message"] = "\n".join(map(errors.shown, problem.message.splitlines()))
            code = problem.exit_code
            if as_json:
                output.emit({"error": {"code": None, "kind": "usage", "message": problem.format_message()}})
            else:
                problem.show()
        except errors.Gc3Error as problem:
            if debug:
                raise
            output.report_error(problem, as_json=as_json)
            code = FAILED
        except Exception as problem:
            if debug:
                raise
            if isinstance(problem, OSError) and problem.errno in _CANNOT_WRITE and problem.filename is None:
                _forget_output()
                problem, as_json = errors.error("FileUnwritable", f"standard output: {problem.strerror}"), False
            output.report_error(_as_error(problem), as_json=as_json)
            code = FAILED
        sys.exit(code if isinstance(code, int) else 0)


class Script(Guarded, Command):  # pyright: ignore[reportIncompatibleMethodOverride]
    """A command that is a program of its own, as those of benchmarks/ are."""


class Commands(Guarded, click.Group):  # pyright: ignore[reportIncompatibleMethodOverride]
    """The group of commands.

    A command's module is imported when it is used: `gc3 --help` and `gc3 list` need not wait for the simulator.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Returns the names of all commands, in the order in which people come to need them."""
        del ctx
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Returns a command by its name."""
        del ctx
        if cmd_name not in _COMMANDS:
            return None
        attribute, _ = _COMMANDS[cmd_name]
        with interrupt.loading():
            return getattr(importlib.import_module(f"gc3.cli.{cmd_name}"), attribute)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Returns the command, and what is left of the arguments; what is none is told with what it may have been."""
        name = args[0] if args else ""
        close = difflib.get_close_matches(name, _COMMANDS, n=1)
        if name not in _COMMANDS and not name.startswith("-"):
            ctx.fail(f"No such command '{name}'." + (f" Did you mean '{close[0]}'?" if close else ""))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes what each command is for."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, what) for name, (_, what) in _COMMANDS.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes where to begin."""
        with formatter.section("First steps"):
            formatter.write("".join(f"  {line:<53} {why}\n" for line, why in _FIRST_STEPS))
        super().format_epilog(ctx, formatter)


def _forget_output() -> None:
    """Lets what is still to be written vanish, at exit too."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _as_error(problem: Exception) -> errors.Gc3Error:
    if isinstance(problem, errors.Gc3Error):
        return problem
    if isinstance(problem, MemoryError):
        return errors.error("OutOfMemory", str(problem))
    return errors.error("Internal", f"{type(problem).__name__}: {problem}", notes=["--debug shows where"])


# The module of gc3.cli with that name, what the command is called there, and what it is for.
_COMMANDS = {
    "demo": ("demo", "See the main job done in a few seconds."),
    "list": ("list_command", "List the algorithms that come with gc3, or tell all about one."),
    "compile": ("compile_command", "Compile an algorithm and prove it."),
    "verify": ("verify_command", "Prove a program, or say what is wrong with it."),
    "run": ("run", "Run a program on data, and compare with NumPy."),
    "bench": ("bench", "Time a program as nccl-tests does."),
    "show": ("show", "Show a program, rank by rank."),
    "sim": ("sim", "Predict times on a machine, and say why; calibrate the predictions."),
    "trace": ("trace", "Write what a program does as a timeline for Perfetto."),
    "synth": ("synth_command", "Find optimal algorithms for a topology, proven."),
    "topo": ("topo", "Machines: list, show, draw, check, import, probe."),
    "tune": ("tune", "Find which program is best for each call, as a selection table."),
    "table": ("table", "Show, check or export such tables."),
    "errors": ("errors_command", "Explain an error code, or list them all."),
    "env": ("env", "Show versions, machine and settings."),
}

_FIRST_STEPS = (
    ("gc3 demo", "see the whole of it at work"),
    ("gc3 list", "the algorithms that come with it"),
    ("gc3 compile ring_allreduce -D R=4 -o r.gc3", "compile one for 4 ranks"),
    ("gc3 verify r.gc3", "prove it"),
    ("gc3 run r.gc3 --size 1MiB --check", "run it on data, compare with NumPy"),
    ("gc3 run examples/my_allgather.py:ring -D R=4 --check", "one of your own"),
    ("gc3 bench ring_allreduce -D R=4", "time it as nccl-tests does"),
)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="gc3")
@click.option("--debug", is_flag=True, help="Show Python tracebacks; works anywhere on the line.")
def main(debug: bool) -> None:
    """Write, prove, compile and run your own collectives.

    Exit codes: 0 good; 1 your program, file or result is wrong; 2 the command line is; 130 interrupted.
    """
