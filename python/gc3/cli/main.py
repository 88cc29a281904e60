"""The entry point: dispatches to the commands and turns every failure into one message and an exit code."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from gc3 import __version__, errors
from gc3.cli import output
from gc3.cli.bench import bench
from gc3.cli.compile import compile_command
from gc3.cli.demo import demo
from gc3.cli.env import env
from gc3.cli.errors import errors_command
from gc3.cli.list import list_command
from gc3.cli.reproduce import reproduce
from gc3.cli.run import run
from gc3.cli.show import show
from gc3.cli.sim import sim
from gc3.cli.synth import synth_command
from gc3.cli.table import table
from gc3.cli.topo import topo
from gc3.cli.trace import trace
from gc3.cli.tune import tune
from gc3.cli.verify import verify_command

FAILED = 1
INTERRUPTED = 130
_CANNOT_WRITE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)
BROKEN_PIPE = 141  # as a program that SIGPIPE ended


class _ReaderGone(Exception):  # noqa: N818  nobody's error
    """Standard output is a pipe that nobody reads any more."""


class Commands(click.Group):
    """The group of commands, with the error handling that all of them share."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes where to begin."""
        with formatter.section("First steps"):
            formatter.write("".join(f"  {line:<53} {why}\n" for line, why in _FIRST_STEPS))
        super().format_epilog(ctx, formatter)

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
        try:
            code: Any = super().main(given, prog_name or "gc3", **extra)
            click.echo(nl=False)  # flushes standard output, if there is one
        except (_ReaderGone, BrokenPipeError):
            _forget_output()  # the reader has gone, as in `gc3 list | head`: nothing is left to be said
            code = BROKEN_PIPE
        except (click.Abort, KeyboardInterrupt):
            click.echo("interrupted", err=True)
            code = INTERRUPTED
        except click.ClickException as problem:
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


def _forget_output() -> None:
    """Lets what is still to be written vanish, at exit too."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _as_error(problem: Exception) -> errors.Gc3Error:
    if isinstance(problem, errors.Gc3Error):
        return problem
    if isinstance(problem, MemoryError):
        return errors.error("OutOfMemory", str(problem))
    return errors.error("Internal", f"{type(problem).__name__}: {problem}", notes=["--debug shows where"])


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


for _command in (
    demo,
    list_command,
    compile_command,
    verify_command,
    run,
    bench,
    show,
    sim,
    trace,
    reproduce,
    synth_command,
    topo,
    table,
    tune,
    errors_command,
    env,
):
    main.add_command(_command)
