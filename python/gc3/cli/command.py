"""A command whose help ends in examples, one for each common use."""

from __future__ import annotations

from collections.abc import Sequence
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
