"""The group of commands `gc3 sim`, whose first argument may be a program."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gc3.cli import completion

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class Group(click.Group):
    """`gc3 sim PROGRAM...` predicts; the other subcommands have names."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Returns the command and the remaining arguments."""
        if args and args[0] in self.commands:
            return super().resolve_command(ctx, args)
        return "predict", self.commands["predict"], args

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Leaves all options but --help to the subcommand."""
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            args = ["predict", *args]
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Offers the subcommands, and programs."""
        named = super().shell_complete(ctx, incomplete)
        return [*named, *completion.programs(ctx, self.commands["predict"].params[0], incomplete)]
