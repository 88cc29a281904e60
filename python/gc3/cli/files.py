"""Files that the user asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click

from gc3.cli.parsed import Parsed
from gc3.report import svg
from gc3.support import drawing, files


class OutputFile(Parsed):
    """The name of a file to write. Checks that it can be written before any work is done."""

    name = "file"

    def __init__(self, *endings: str, any_case: bool = False, others: str = "") -> None:
        """Takes the allowed endings of the name, in small letters alone or in any; none: any name is allowed.

        `others` says who writes other forms.
        """
        self._endings = endings
        self._others = others
        self._any_case = any_case

    def parse(self, text: str) -> str:
        """Returns the name."""
        known = not self._endings or (text.lower() if self._any_case else text).endswith(self._endings)
        if not known and not files.is_device(text):
            forms = f"{', '.join(self._endings)}, which selects the form{self._others}"
            raise ValueError(f"'{text}': the name must end in {forms}")
        files.check_writable(text)
        return text


class Picture(OutputFile):
    """The name of a picture or a page to write; its ending selects the form."""

    def __init__(self, checks: Mapping[str, Callable[[str], object]] | None = None) -> None:
        """Takes, for each ending, what checks that the form can be made; None: gc3's own drawings, SVG and PNG."""
        self._checks = dict.fromkeys(svg.FORMATS, svg.check) if checks is None else checks
        super().__init__(*self._checks, any_case=checks is not None)

    def parse(self, text: str) -> str:
        """Returns the name."""
        path = super().parse(text)
        for ending, check in self._checks.items():
            if path.lower().endswith(ending):
                check(path)
        return path


DRAWN: Mapping[str, Callable[[str], object]] = dict.fromkeys(drawing.FORMATS, drawing.check)  # by matplotlib
PAGE: Mapping[str, Callable[[str], object]] = {".html": lambda _: drawing.check("x.svg")}


def picture_option(what: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Returns the option --picture, which draws `what`."""
    return click.option("--picture", type=Picture(), metavar="FILE.svg|png", help=what)


class OutputFolder(Parsed):
    """The name of a folder to write to, which is created if needed."""

    name = "folder"

    def parse(self, text: str) -> str:
        """Returns the name."""
        files.make_folder(text)
        return text
