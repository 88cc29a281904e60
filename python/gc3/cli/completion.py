"""gc3 completion, and what a shell offers for the arguments of the commands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem, get_completion_class

from gc3 import _core, collectives, topologies
from gc3.algorithms import catalogue
from gc3.cli.command import Command

if TYPE_CHECKING:
    from gc3.lang import Algorithm
    from gc3.topologies import Preset

_VARIABLE = "_GC3_COMPLETE"  # click's own name for it
_FILES = {
    "bash": "~/.local/share/bash-completion/completions/gc3",
    "zsh": "_gc3 in a folder of $fpath",
    "fish": "~/.config/fish/completions/gc3.fish",
}
_VALUES = (2, 4, 8, 16)  # offered for a parameter that has no default


@click.command(
    "completion",
    cls=Command,
    short_help="Print the completion script of a shell.",
    examples=["gc3 completion bash", "gc3 completion zsh", "gc3 completion fish"],
)
@click.argument("shell", type=click.Choice(tuple(_FILES)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that makes a shell complete commands, options, algorithms, parameters and machines.

    In the shell that is open, `eval "$(gc3 completion bash)"` enables it. To keep it, write the script to the file that
    its first line names.
    """
    maker = get_completion_class(shell)
    if maker is None:
        raise click.UsageError(f"this version of click has no completion for {shell}")
    click.echo(f"# Completion of gc3 for {shell}; to keep it: {_FILES[shell]}")
    click.echo(maker(ctx.find_root().command, {}, "gc3", _VARIABLE).source())


def _offered(names: dict[str, str], begun: str) -> list[CompletionItem]:
    """Returns the names that begin so, with what each is; if there are none, files of that name."""
    found = [CompletionItem(name, help=what) for name, what in names.items() if name.startswith(begun)]
    return found or [CompletionItem(begun, type="file")]


def programs(_ctx: click.Context, _param: click.Parameter, begun: str) -> list[CompletionItem]:
    """Offers the algorithms of the library, or files."""
    return _offered({name: a.good_for for name, a in catalogue().items()}, begun)


def parameters(ctx: click.Context, _param: click.Parameter, begun: str) -> list[CompletionItem]:
    """Offers values of the parameters of the algorithm or the machine that the command line names."""
    # A file is never looked at: that would run its code. After an option without its value, click leaves the arguments
    # in `args`.
    of_machine = ctx.parent is not None and ctx.parent.info_name == "topo"
    known: Mapping[str, Algorithm | Preset] = topologies.catalogue() if of_machine else catalogue()
    found: dict[str, str] = {}
    for spec in (str(ctx.params.get("spec")), *ctx.args):
        if spec in known:
            for p in known[spec].parameters:
                values = _VALUES if p.default is None else (p.default,)
                found |= {f"{p.name}={value}": f"a parameter of {spec}" for value in values}
    return [CompletionItem(text, help=what) for text, what in found.items() if text.startswith(begun)]


def machines(_ctx: click.Context, _param: click.Parameter, begun: str) -> list[CompletionItem]:
    """Offers the machines that come with gc3, or files."""
    return _offered({name: preset.summary for name, preset in topologies.catalogue().items()}, begun)


def codes(_ctx: click.Context, _param: click.Parameter, begun: str) -> list[CompletionItem]:
    """Offers the codes of errors."""
    return [CompletionItem(e.code, help=e.title) for e in _core.all_errors() if e.code.startswith(begun.upper())]


def problems(_ctx: click.Context, _param: click.Parameter, begun: str) -> list[CompletionItem]:
    """Offers the collectives, or files."""
    return _offered({name: c.summary for name, c in collectives.BUILTIN.items()}, begun)
