"""What commands print: text for people, or one JSON document for programs; errors in both forms."""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
import textwrap
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout, suppress
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.status import Status

from gc3 import errors

if TYPE_CHECKING:
    from gc3 import _core

_OUTPUT, _ERRORS = 1, 2  # file descriptors
_MOST_OF_A_LINE = 200
_BLOCK = 1 << 16  # bytes read at once of a skipped line
_SPINNER = 3  # columns
_PATIENCE = 1.2  # seconds without a word; Python starts and loads NumPy before
_SHOWN: list[str] = []  # the step that a terminal shows
_RARELY = 30.0  # seconds from one word to the next


def emit(data: dict[str, Any]) -> None:
    """Prints the JSON document of a command, its whole standard output."""
    click.echo(json.dumps(data, indent=2, allow_nan=False))


def remark(text: str) -> None:
    """Prints a remark to the user, apart from the results."""
    click.secho(f"note: {text}", fg="yellow", err=True)


def _shown_path(file: str) -> str:
    """The path relative to the working directory, if that is shorter."""
    path = Path(file)
    try:
        here = Path.cwd()
    except OSError:  # it has been removed
        return file
    return str(path.relative_to(here)) if path.is_absolute() and path.is_relative_to(here) else file


def _line(file: str, number: int) -> str:
    """A line of a file, made printable for a terminal: files and their lines may have any size and content."""
    path = Path(file)
    try:
        if not path.is_file():
            return ""
        # Read and not mapped: if the file were shortened meanwhile, a signal would end this process.
        with path.open("rb") as content:
            for _ in range(number - 1):
                while not (part := content.readline(_BLOCK)).endswith(b"\n"):
                    if not part:
                        return ""
            text = content.readline(_MOST_OF_A_LINE).removesuffix(b"\n")
    except (OSError, ValueError):  # the file is gone, or its name is invalid
        return ""
    return shown(text.decode(errors="replace")) + (" ..." if len(text) == _MOST_OF_A_LINE else "")


def shown(text: str, most: int = _MOST_OF_A_LINE) -> str:
    """A text from a file, made printable for a terminal: it may have any length and content."""
    printable = errors.shown(text[:most].strip())
    return printable + (" ..." if len(text) > most else "")


def diagnostic_data(diagnostic: _core.Diagnostic) -> dict[str, Any]:
    """Returns a finding as plain data."""

    def place(where: _core.SourceLocation) -> dict[str, Any]:
        return {"file": where.file or None, "line": where.line or None}

    return {
        "code": diagnostic.code,
        "name": diagnostic.name,
        "kind": diagnostic.kind.name.lower(),
        "title": diagnostic.title,
        "message": diagnostic.message,
        **place(diagnostic.where),
        "notes": [{"text": note.text, **place(note.where)} for note in diagnostic.notes],
        "hint": diagnostic.hint,
    }


def print_diagnostics(diagnostics: Sequence[_core.Diagnostic]) -> None:
    """Prints findings on standard error; a hint shared by several in a row appears once, after the last."""
    for diagnostic, following in zip_longest(diagnostics, diagnostics[1:]):
        _print_diagnostic(diagnostic, hint=following is None or following.hint != diagnostic.hint)


def _print_diagnostic(diagnostic: _core.Diagnostic, *, hint: bool) -> None:
    """Prints a finding: code, place, the line itself, notes and, if wanted, hint."""

    def show(where: _core.SourceLocation) -> None:
        if not where.file:
            return
        click.secho(f"  --> {_shown_path(where.file)}:{where.line}", fg="cyan", err=True)
        source = _line(where.file, where.line)
        if source:
            click.echo(f"      {source}", err=True)

    head = click.style(f"error {diagnostic.code}", fg="red", bold=True)
    text = f"{diagnostic.title}: {diagnostic.message}" if diagnostic.message else diagnostic.title
    click.echo(f"{head}: {text}", err=True)
    show(diagnostic.where)
    for note in diagnostic.notes:
        click.echo(f"  note: {note.text}", err=True)
        show(note.where)
    if diagnostic.hint and hint:
        click.secho(f"  hint: {diagnostic.hint}", fg="green", err=True)


def report_error(error: errors.Gc3Error, *, as_json: bool) -> None:
    """Prints an error in the form that the user asked for."""
    if as_json:
        first, *others = [diagnostic_data(d) for d in error.diagnostics]
        emit({"error": {**first, "others": others}})
        return
    print_diagnostics(error.diagnostics)


@contextmanager
def apart() -> Generator[None, None, None]:
    """Redirects to standard error what the user's code writes to standard output.

    It covers print, os.write to descriptor 1, and processes that the code starts.
    """
    click.echo(nl=False)  # flushes standard output, if there is one
    try:
        kept = os.dup(_OUTPUT)
    except OSError:
        kept = None
    with suppress(OSError):  # there may be no standard error either
        os.dup2(_ERRORS, _OUTPUT)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        if kept is not None:
            os.dup2(kept, _OUTPUT)
            os.close(kept)
        else:
            with suppress(OSError):
                os.close(_OUTPUT)


def columns(most: int = 100) -> int:
    """Returns how wide text may be, in characters: as wide as the terminal, and at most so wide."""
    return min(shutil.get_terminal_size((100, 24)).columns, most)


class _Terminal(io.StringIO):
    """Takes what a command prints for a terminal, with its colours."""

    def isatty(self) -> bool:
        return True


@contextmanager
def paged() -> Generator[None, None, None]:
    """Shows what a command prints with a pager, if it is longer than the terminal; PAGER=cat switches that off."""
    if not (sys.stdout.isatty() and sys.stdin.isatty()):
        yield
        return
    columns, rows = shutil.get_terminal_size()
    terminal, sys.stdout = sys.stdout, _Terminal()
    try:
        yield
    finally:
        text = sys.stdout.getvalue()
        sys.stdout = terminal
        if sum(len(click.unstyle(line)) // columns + 1 for line in text.splitlines()) < rows:
            click.echo(text, nl=False)
        else:
            click.echo_via_pager(text)


def comment(*lines: str) -> None:
    """Prints lines beside a table, each after a #."""
    for text in lines:
        click.echo(fitted(f"# {text}", "#   "))


def fitted(text: str, indent: str) -> str:
    """Returns a line of a table, on a narrow terminal as several that are indented."""
    if not narrow(len(text)):
        return text
    return textwrap.fill(text, columns(len(text)), subsequent_indent=indent, break_on_hyphens=False)


def narrow(width: int) -> bool:
    """Returns whether the output is a terminal with fewer columns."""
    return sys.stdout.isatty() and columns(width) < width


@contextmanager
def never_silent(what: str | Callable[[], str]) -> Generator[None, None, None]:
    """Says what a command does, if after a while it has not ended, and no terminal shows that it works.

    If that changes, it says so again, ever more rarely.
    """
    if sys.stderr is not sys.__stderr__ or sys.stderr is None or sys.stderr.isatty():
        yield  # inside another program, it is for that to say
        return
    ended = threading.Event()

    def tell() -> None:
        told, wait = "", _PATIENCE
        while not ended.wait(wait):
            now = what if isinstance(what, str) else what()
            if now != told:
                click.echo(f"{now} ...", err=True)
            told, wait = now, min(2 * wait, _RARELY)

    teller = threading.Thread(target=tell, daemon=True)
    with suppress(RuntimeError):  # without a thread the command works, too
        teller.start()
    try:
        yield
    finally:
        ended.set()
        if teller.ident is not None:
            teller.join()


@contextmanager
def working(what: str) -> Generator[None, None, None]:
    """Shows on a terminal what a long step is doing, the outermost of several; elsewhere prints nothing."""
    console = Console(stderr=True)
    if not console.is_terminal or _SHOWN:
        yield
        return
    _SHOWN.append(what)
    try:
        with console.status(f"{what} ..."):
            yield
    finally:
        _SHOWN.clear()


class Watch:
    """Shows on a terminal which part of a long step is running."""

    def __init__(self, what: str, status: Status | None, width: int = 0) -> None:
        """Takes the name of the step, the terminal line, if there is one, and its width."""
        self._what = what
        self._status = status
        self._width = width

    def __call__(self, part: str) -> None:
        """Shows the current part."""
        if self._status is not None:
            text = f"{self._what}: {part} ..."
            self._status.update(escape(text if len(text) <= self._width else f"{text[: self._width - 3]}..."))

    @contextmanager
    def aside(self) -> Generator[None, None, None]:
        """Clears the line while something is printed."""
        if self._status is None:
            yield
            return
        self._status.stop()
        yield
        self._status.start()


@contextmanager
def watching(what: str) -> Generator[Watch, None, None]:
    """Like `working`, for a long step with parts."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield Watch(what, None)
        return
    with console.status(f"{what} ...") as status:
        yield Watch(what, status, console.width - _SPINNER)


@contextmanager
def progress(what: str, total: int, *, printing: bool) -> Generator[Callable[[str], None], None, None]:
    """Shows a bar on a terminal. Yields a function to call with the name of each of `total` parts before it starts.

    There is no bar if rows printed to the same terminal already show the progress. Where no rows are printed and there
    is no terminal, lines on standard error do.
    """
    console = Console(stderr=True)
    begun, part = 0, ""
    shown = console.is_terminal and not (printing and sys.stdout.isatty())
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    silent = nullcontext() if printing else never_silent(lambda: f"{what} {part}, {begun} of {total}")
    with silent, Progress(*columns, console=console, transient=True, redirect_stdout=False, disable=not shown) as bar:
        task = bar.add_task(what, total=total)

        def begin(name: str) -> None:
            nonlocal begun, part
            bar.update(task, description=f"{what} {name}", completed=begun)
            begun, part = begun + 1, name

        yield begin
