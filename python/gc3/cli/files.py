"""Files that the user asked for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gc3.report import page, svg
from gc3.support import drawing, files

if TYPE_CHECKING:
    _TextType = click.ParamType[str]
else:  # older versions of click have no type argument
    _TextType = click.ParamType


class OutputFile(_TextType):
    """The name of a file to write. Checks that it can be written before any work is done."""

    name = "file"

    def __init__(self, *endings: str) -> None:
        """Takes the allowed endings of the name; none: any name is allowed."""
        self._endings = endings

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Returns the name."""
        if self._endings and not value.endswith(self._endings) and not files.is_device(value):
            self.fail(f"'{value}': the name must end in {', '.join(self._endings)}, which selects the form", param, ctx)
        files.check_writable(value)
        return value


class Drawing(OutputFile):
    """The name of a drawing to write."""

    def __init__(self, *, checked: bool = True) -> None:
        """Takes whether to check at once that matplotlib is installed; else that is left to who draws."""
        super().__init__()
        self._checked = checked

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Returns the name; checks that matplotlib is installed and knows the format."""
        if Path(value).suffix.lower() not in drawing.FORMATS:
            self.fail(f"'{value}': the name of a drawing must end in {', '.join(drawing.FORMATS)}", param, ctx)
        if self._checked:
            drawing.check(value)
        return super().convert(value, param, ctx)


class Picture(OutputFile):
    """The name of a picture to write, by its ending as SVG or PNG."""

    def __init__(self) -> None:
        """Takes nothing: the endings are those that can be written."""
        super().__init__(*svg.FORMATS)

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Returns the name; checks that what makes its form is installed."""
        path = super().convert(value, param, ctx)
        svg.check(path)
        return path


def picture_option(what: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Returns the option --picture, which draws `what`."""
    return click.option("--picture", type=Picture(), metavar="FILE.svg|png", help=what)


class Page(OutputFile):
    """The name of a page for a browser to write."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Returns the name; checks that plotly is installed."""
        page.check()
        return super().convert(value, param, ctx)


class DrawingOrPage(_TextType):
    """The name of a drawing to write, or of a page for a browser."""

    name = "file"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Returns the name."""
        return (Page(".html") if value.endswith(".html") else Drawing()).convert(value, param, ctx)


class OutputFolder(_TextType):
    """The name of a folder to write to, which is created if needed."""

    name = "folder"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Returns the name."""
        del param, ctx
        files.make_folder(value)
        return value
