"""Files that the user asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from gc3.report import svg
from gc3.support import drawing, files

if TYPE_CHECKING:
    _TextType = click.ParamType[str]
else:  # older versions of click have no type argument
    _TextType = click.ParamType


class OutputFile(_TextType):
    """The name of a file to write. Checks that it can be written before any work is done."""

    name = "file"

    def __init__(self, *endings: str, any_case: bool = False, others: str = "") -> None:
        """Takes the allowed endings of the name, in small letters alone or in any; none: any name is allowed.

        `others` says who writes other forms.
        """
        self._endings = endings
        self._others = others
        self._any_case = any_case

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Returns the name."""
        if (
            self._endings
            and not (value.lower() if self._any_case else value).endswith(self._endings)
            and not files.is_device(value)
        ):
            forms = f"{', '.join(self._endings)}, which selects the form{self._others}"
            self.fail(f"'{value}': the name must end in {forms}", param, ctx)
        files.check_writable(value)
        return value


class Picture(OutputFile):
    """The name of a picture or a page to write; its ending selects the form."""

    def __init__(self, checks: Mapping[str, Callable[[str], object]] | None = None) -> None:
        """Takes, for each ending, what checks that the form can be made; None: gc3's own drawings, SVG and PNG."""
        self._checks = dict.fromkeys(svg.FORMATS, svg.check) if checks is None else checks
        super().__init__(*self._checks, any_case=checks is not None)

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Returns the name."""
        path = super().convert(value, param, ctx)
        for ending, check in self._checks.items():
            if path.lower().endswith(ending):
                check(path)
        return path


DRAWN: Mapping[str, Callable[[str], object]] = dict.fromkeys(drawing.FORMATS, drawing.check)  # by matplotlib
PAGE: Mapping[str, Callable[[str], object]] = {".html": lambda _: drawing.check("x.svg")}


def picture_option(what: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Returns the option --picture, which draws `what`."""
    return click.option("--picture", type=Picture(), metavar="FILE.svg|png", help=what)


class OutputFolder(_TextType):
    """The name of a folder to write to, which is created if needed."""

    name = "folder"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Returns the name."""
        del param, ctx
        files.make_folder(value)
        return value
