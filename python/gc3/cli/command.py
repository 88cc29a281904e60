"""A command whose help ends in examples, one for each common use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click


class Command(click.Command):
    """A command with examples, which the tests also run."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **kwargs: Any) -> None:
        """Takes what `click.Command` takes."""
        super().__init__(*args, **kwargs)
        self.examples = tuple(examples)

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
