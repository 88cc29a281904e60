"""The entry point: dispatches to the commands and turns every failure into one message and an exit code."""

from __future__ import annotations

import difflib
import errno
import importlib
import os
import shutil
import sys
from collections.abc import Sequence
from typing import Any

import click
from rich.console import Console

from gc3 import __version__, errors
from gc3.cli import interrupt, output
from gc3.cli.command import Command, Context
from gc3.support import knobs
from gc3.support.starting import refused

FAILED = 1
_NARROW = 52  # columns
_CANNOT_WRITE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)
BROKEN_PIPE = 141  # the exit code of a program that SIGPIPE ended


class _ReaderGone(Exception):  # noqa: N818  not an error
    """Standard output is a pipe whose reader has closed it."""


class Guarded(click.Command):
    """A command that turns every failure into one message and an exit code when it runs as a program."""

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command that the context names."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as problem:
            raise _ReaderGone from problem  # click would treat it as an ordinary failure

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
        columns = shutil.get_terminal_size().columns
        if columns < _NARROW:
            extra.setdefault("terminal_width", columns)  # click's own help is never narrower than 50 columns
        extra["color"] = False if Console().no_color else None  # as NO_COLOR says; None: on a terminal
        with click.Context(self, color=extra["color"]).scope():  # for what is printed outside the command's own
            code = self._main(given, prog_name or "gc3", extra, debug=debug, as_json=as_json)
        sys.exit(code)

    def _main(self, given: list[str], prog_name: str, extra: dict[str, Any], *, debug: bool, as_json: bool) -> int:
        for text in knobs.unknown():
            output.remark(text)
        try:
            code: Any = super().main(given, prog_name, **extra)
            click.echo(nl=False)  # flushes standard output, if there is one
        except (_ReaderGone, BrokenPipeError):
            _forget_output()  # the reader has closed the pipe, as in `gc3 list | head`: there is nothing to print
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
        return code if isinstance(code, int) else 0


class Script(Guarded, Command):  # pyright: ignore[reportIncompatibleMethodOverride]
    """A command that is a separate program, such as those of benchmarks/."""


class Commands(Guarded, click.Group):  # pyright: ignore[reportIncompatibleMethodOverride]
    """The group of commands.

    A command's module is imported on use, so that `gc3 --help` and `gc3 list` do not load the simulator.
    """

    context_class = Context

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Returns the names of all commands, in the order in which users need them."""
        del ctx
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Returns a command by its name."""
        del ctx
        if cmd_name not in _COMMANDS:
            return None
        module, _, attribute = _COMMANDS[cmd_name][0].rpartition(":")
        with interrupt.loading():
            return getattr(importlib.import_module(f"gc3.cli.{module or cmd_name}"), attribute)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Returns the command and the remaining arguments; for an unknown command, suggests a similar one."""
        name = args[0] if args else ""
        close = difflib.get_close_matches(name, _COMMANDS, n=1)
        if name == "explain":
            ctx.fail("No such command 'explain': use gc3 sim PROGRAM --mode explain, or gc3 report.")
        if name not in _COMMANDS and not name.startswith("-"):
            ctx.fail(f"No such command '{name}'." + (f" Did you mean '{close[0]}'?" if close else ""))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the purpose of each command."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, what) for name, (_, what) in _COMMANDS.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the first commands to try."""
        with formatter.section("First steps"):
            if formatter.width < _NARROW:
                formatter.write("".join(f"  {line}\n      {why}\n" for line, why in _FIRST_STEPS))
            else:
                formatter.write("".join(f"  {line:<53} {why}\n" for line, why in _FIRST_STEPS))
        super().format_epilog(ctx, formatter)


def _forget_output() -> None:
    """Discards the output that has not been written, also at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _as_error(problem: Exception) -> errors.Gc3Error:
    if isinstance(problem, errors.Gc3Error):
        return problem
    if isinstance(problem, MemoryError):
        return errors.error("OutOfMemory", str(problem))
    if isinstance(problem, RuntimeError) and "start new thread" in str(problem):
        return refused("a thread", problem)
    return errors.error("Internal", f"{type(problem).__name__}: {problem}", notes=["--debug shows where"])


# The module of gc3.cli with that name, the name of the command object in it, and its purpose.
_COMMANDS = {
    "demo": ("demo", "Compile, prove, run and time an algorithm in a few seconds."),
    "list": ("list_command", "List the algorithms that come with gc3, or show one in detail."),
    "compile": ("compile_command", "Compile an algorithm and prove it."),
    "export": ("compile:export_command", "Write a program or a table in a form of other runtimes."),
    "verify": ("verify_command", "Prove a program, or say what is wrong with it."),
    "run": ("run", "Run a program on data, and compare with NumPy."),
    "bench": ("bench", "Time a program as nccl-tests does."),
    "show": ("show", "Show a program, rank by rank."),
    "gain": ("gain", "Say what programs would gain over NCCL on a machine."),
    "sim": ("sim", "Predict and explain times on a machine; calibrate the predictions."),
    "report": ("program_report:report_command", "Write a page about a program on a machine, for a browser."),
    "trace": ("trace", "Write a timeline of a program for Perfetto."),
    "synth": ("synth_command", "Find optimal algorithms for a topology, proven."),
    "topo": ("topo", "Machines: list, show, draw, check, import, probe."),
    "tune": ("tune", "Find which program is best for each call, as a selection table."),
    "table": ("table", "Show, check or compile selection tables."),
    "nccl": ("nccl", "Put GC3's programs behind NCCL's API; explain what served its calls."),
    "errors": ("errors_command", "Explain an error code, or list them all."),
    "env": ("env", "Show versions, machine and settings."),
    "completion": ("completion", "Print the completion script of a shell."),
}

_FIRST_STEPS = (
    ("gc3 demo", "compile, prove, run and time an example"),
    ("gc3 list", "the algorithms that come with it"),
    ("gc3 compile ring_allreduce:R=4 -o r.gc3", "compile one for 4 ranks"),
    ("gc3 verify r.gc3", "prove it"),
    ("gc3 run r.gc3 --size 1MiB", "run it on data, compare with NumPy"),
    ("gc3 run examples/my_allgather.py:ring:R=4", "run your own algorithm"),
    ("gc3 bench ring_allreduce:R=4", "time it as nccl-tests does"),
)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="gc3")
@click.option("--debug", is_flag=True, help="Show Python tracebacks; works anywhere on the line.")
def main(debug: bool) -> None:
    """Write, prove, compile and run your own collectives.

    Programs, machines and engines may be followed by :key=value,... as in ring_allreduce:R=4,protocol=LL, ndv4:N=2 and
    threads:slots=2; `gc3 compile --help`, `gc3 topo list` and `gc3 run --help` list the keys.

    Exit codes: 0 success; 1 the program, file or result is wrong; 2 wrong command line; 130 interrupted.
    """
