"""Arguments and options that are parsed from their text."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import click

from gc3 import errors

if TYPE_CHECKING:
    _AnyType = click.ParamType[Any]
else:  # older versions of click have no type argument
    _AnyType = click.ParamType


class Parsed(_AnyType):
    """A type of arguments. A `ValueError` of its parser is what is wrong with the command line."""

    @abstractmethod
    def parse(self, text: str) -> Any:
        """Returns what a text means."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Returns what a text means; defaults need not be texts."""
        try:
            return self.parse(value) if isinstance(value, str) else value
        except errors.Gc3Error:  # of a file that the text names
            raise
        except ValueError as problem:
            self.fail(str(problem), param, ctx)
