"""What commands print: text for people, one JSON document for machines; errors either way."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
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
_BLOCK = 1 << 16  # bytes read at once of a line that is passed over
_SPINNER = 3  # columns


def emit(data: dict[str, Any]) -> None:
    """Prints the JSON document of a command, its whole standard output."""
    click.echo(json.dumps(data, indent=2))


def remark(text: str) -> None:
    """Prints something the user should know about, apart from the results."""
    click.secho(f"note: {text}", fg="yellow", err=True)


def _shown_path(file: str) -> str:
    """Relative to the working directory where that is shorter."""
    path = Path(file)
    try:
        here = Path.cwd()
    except OSError:  # it has been removed
        return file
    return str(path.relative_to(here)) if path.is_absolute() and path.is_relative_to(here) else file


def _line(file: str, number: int) -> str:
    """A line of a file for people, fit for a terminal: files and their lines may be of any size, and hold anything."""
    path = Path(file)
    try:
        if not path.is_file():
            return ""
        # Read and not mapped: whoever shortened the file meanwhile would end this process by a signal.
        with path.open("rb") as content:
            for _ in range(number - 1):
                while not (part := content.readline(_BLOCK)).endswith(b"\n"):
                    if not part:
                        return ""
            text = content.readline(_MOST_OF_A_LINE).removesuffix(b"\n")
    except (OSError, ValueError):  # it is gone, or its name is none
        return ""
    return shown(text.decode(errors="replace")) + (" ..." if len(text) == _MOST_OF_A_LINE else "")


def shown(text: str, most: int = _MOST_OF_A_LINE) -> str:
    """A text from a file, fit for a terminal: of any length, and with anything in it."""
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
    """Prints findings on standard error; a hint that several in a row share once, after the last of them."""
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
    """Prints an error the way the user asked for."""
    if as_json:
        first, *others = [diagnostic_data(d) for d in error.diagnostics]
        emit({"error": {**first, "others": others}})
        return
    print_diagnostics(error.diagnostics)


@contextmanager
def apart() -> Generator[None, None, None]:
    """Sends to standard error what the user's code writes to standard output.

    Be it by print, by os.write to descriptor 1, or by a process that it starts.
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


@contextmanager
def working(what: str) -> Generator[None, None, None]:
    """Says on a terminal what is going on while it takes time; elsewhere nothing."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    with console.status(f"{what} ..."):
        yield


class Watch:
    """Says on a terminal which part of something long goes on."""

    def __init__(self, what: str, status: Status | None, width: int = 0) -> None:
        """Takes what it is, and the line on the terminal, if there is one, and how long that may be."""
        self._what = what
        self._status = status
        self._width = width

    def __call__(self, part: str) -> None:
        """Says what goes on now."""
        if self._status is not None:
            text = f"{self._what}: {part} ..."
            self._status.update(escape(text if len(text) <= self._width else f"{text[: self._width - 3]}..."))

    @contextmanager
    def aside(self) -> Generator[None, None, None]:
        """Takes the line away while something is printed."""
        if self._status is None:
            yield
            return
        self._status.stop()
        yield
        self._status.start()


@contextmanager
def watching(what: str) -> Generator[Watch, None, None]:
    """Like `working`, for what takes long and has parts."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield Watch(what, None)
        return
    with console.status(f"{what} ...") as status:
        yield Watch(what, status, console.width - _SPINNER)


@contextmanager
def progress(what: str, total: int, *, printing: bool) -> Generator[Callable[[str], None], None, None]:
    """Shows a bar on a terminal. Yields a function to call before each of `total` parts with what it is.

    There is no bar where rows printed to the same terminal show the progress already.
    """
    console = Console(stderr=True)
    shown = console.is_terminal and not (printing and sys.stdout.isatty())
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, redirect_stdout=False, disable=not shown) as bar:
        task = bar.add_task(what, total=total)
        begun = 0

        def begin(part: str) -> None:
            nonlocal begun
            bar.update(task, description=f"{what} {part}", completed=begun)
            begun += 1

        yield begin
