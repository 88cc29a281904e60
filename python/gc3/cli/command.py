"""A command whose help ends in examples, one for each common use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from functools import wraps
from typing import Any, TypeVar

import click

from gc3.cli import output

Given = TypeVar("Given")


def gathered(kind: Callable[..., Given]) -> Callable[[Callable[[Given], int]], Callable[..., int]]:
    """Gives a command its arguments and options as one object: `kind` is a dataclass with their names."""

    def wrap(command: Callable[[Given], int]) -> Callable[..., int]:
        @wraps(command)
        def with_object(**given: object) -> int:
            return command(kind(**given))

        return with_object

    return wrap


class _Help(click.HelpFormatter):
    """Leaves the explanations of options two thirds of a narrow terminal."""

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        """Writes options and what they mean."""
        super().write_dl(rows, min(col_max, self.width // 3), col_spacing)


class Context(click.Context):
    """A context whose help fits a narrow terminal."""

    formatter_class = _Help

    @property
    def command_path(self) -> str:
        """The words that name the command: those of its group, if the user need not name it."""
        return super().command_path.rstrip()


class Command(click.Command):
    """A command with examples, which the tests also run."""

    context_class = Context

    def __init__(self, *args: Any, examples: Sequence[str] = (), long: bool = False, **kwargs: Any) -> None:
        """Takes what `click.Command` takes; the output of a `long` one goes through a pager where it needs one."""
        super().__init__(*args, **kwargs)
        self.examples = tuple(examples)
        self._long = long

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command."""
        with output.paged() if self._long else nullcontext():
            return super().invoke(ctx)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the examples, unwrapped, so that they can be copied."""
        if self.examples:
            with formatter.section("Examples"):
                formatter.write("".join(f"  {example}\n" for example in self.examples))
        super().format_epilog(ctx, formatter)


class WithFurther(Command):
    """A command with further ones, which its first argument names: `gc3 synth best`."""

    def __init__(self, *args: Any, further: Mapping[str, click.Command], **kwargs: Any) -> None:
        """Takes the further commands by name, and what `Command` takes."""
        super().__init__(*args, **kwargs)
        self.further = further

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Returns the context of this command, or of the one that is named."""
        if args and args[0] in self.further:
            return self.further[args[0]].make_context(f"{info_name} {args[0]}", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)
