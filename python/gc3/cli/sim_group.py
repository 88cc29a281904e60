"""The group of commands `gc3 sim`, whose first argument may be a program."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gc3.cli import completion

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_UNNAMED = ""  # stands for the name of `predict` where a line has none


class Group(click.Group):
    """`gc3 sim PROGRAM...` predicts; the other subcommands have names."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Returns the command and the remaining arguments; `predict` has no name that was not typed."""
        if args and args[0] in self.commands:
            return super().resolve_command(ctx, args)
        return "", self.commands["predict"], args[args[:1] == [_UNNAMED] :]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Leaves all options but --help to the subcommand."""
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            args = [_UNNAMED, *args]
        return super().parse_args(ctx, args)

    def get_help(self, ctx: click.Context) -> str:
        """Returns the help of `predict`, and the names of the other commands."""
        predict = self.commands["predict"]
        own = predict.make_context("", [], parent=ctx, resilient_parsing=True)
        formatter = own.make_formatter()
        self.format_commands(own, formatter)
        return f"{predict.get_help(own)}\n\n{formatter.getvalue().rstrip()}"

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Offers the subcommands, and programs."""
        named = super().shell_complete(ctx, incomplete)
        return [*named, *completion.programs(ctx, self.commands["predict"].params[0], incomplete)]
