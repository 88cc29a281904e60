"""Files that the user asked for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gc3.report import page
from gc3.support import drawing, files

if TYPE_CHECKING:
    _TextType = click.ParamType[str]
else:  # older versions of click have no type argument
    _TextType = click.ParamType


class OutputFile(_TextType):
    """The name of a file to write: that it can be written is found out before any work is done."""

    name = "file"

    def __init__(self, *endings: str) -> None:
        """Takes the endings of which the name must have one; none: any name will do."""
        self._endings = endings

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Returns the name."""
        if self._endings and not value.endswith(self._endings) and not files.is_device(value):
            self.fail(f"'{value}': the name ends in {', '.join(self._endings)}, which says what to write", param, ctx)
        files.check_writable(value)
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
        files.make_folder(value)
        return value
