"""Files that the user asked for."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gc3 import drawing, errors
from gc3.report import page

if TYPE_CHECKING:
    _TextType = click.ParamType[str]
else:  # older versions of click have no type argument
    _TextType = click.ParamType


class OutputFile(_TextType):
    """The name of a file to write: that it can be written is found out before any work is done."""

    name = "file"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Returns the name."""
        del param, ctx
        check_writable(value)
        return value


class Drawing(OutputFile):
    """The name of a drawing to write."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Returns the name; there is matplotlib, and the name says a format that it knows."""
        if Path(value).suffix.lower() not in drawing.FORMATS:
            self.fail(f"'{value}': the name of a drawing ends in {', '.join(drawing.FORMATS)}", param, ctx)
        drawing.check(value)
        return super().convert(value, param, ctx)


class Page(OutputFile):
    """The name of a page for a browser to write."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Returns the name; there is plotly."""
        page.check()
        return super().convert(value, param, ctx)


class OutputFolder(_TextType):
    """The name of a folder to write to, which is made if need be."""

    name = "folder"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Returns the name."""
        del param, ctx
        make_folder(value)
        return value


def make_folder(path: str) -> None:
    """Makes a folder, if it is not there, and makes sure that files can be written to it.

    Raises:
        gc3.UserError: They cannot.
    """
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as problem:
        raise _unwritable(path, problem) from None


def check_writable(path: str) -> None:
    """Makes sure that a file can be written, and leaves it as it is.

    Raises:
        gc3.UserError: It cannot: it is a folder, its folder is missing, or it is somebody else's.
    """
    place = Path(os.path.realpath(path))
    try:
        if place.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not place.exists():
            place.open("xb").close()
            place.unlink()
        elif place.is_file():
            place.open("r+b").close()
    except OSError as problem:
        raise _unwritable(path, problem) from None


def write_text(path: str, text: str) -> None:
    """Writes a file that the user asked for."""
    write_bytes(path, text.encode())


def write_bytes(path: str, data: bytes) -> None:
    """Writes a file that the user asked for."""
    try:
        Path(path).write_bytes(data)
    except OSError as problem:
        raise _unwritable(path, problem) from None


def _unwritable(path: str, problem: OSError) -> errors.Gc3Error:
    return errors.error("FileUnwritable", f"'{path}': {problem.strerror}")
