"""gc3 completion, and what a shell offers for the arguments of the commands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem, get_completion_class

from gc3 import _core, collectives, datatypes, topologies
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
    if shell == "bash":  # else it completes the parts of ring_allreduce:R=4 one by one
        click.echo("COMP_WORDBREAKS=${COMP_WORDBREAKS//[:=]/}")
    click.echo(maker(ctx.find_root().command, {}, "gc3", _VARIABLE).source())


def _offered(names: dict[str, str], begun: str) -> list[CompletionItem]:
    """Returns the names that begin so, with what each is; if there are none, files of that name."""
    found = [CompletionItem(name, help=what) for name, what in names.items() if name.startswith(begun)]
    return found or [CompletionItem(begun, type="file")]


def _completed(
    known: Mapping[str, Algorithm | Preset], told: dict[str, str], begun: str, more: tuple[str, ...] = ()
) -> list[CompletionItem]:
    """Offers what may follow NAME: or NAME:key=value, as far as NAME is one of gc3; else names, with what each is.

    A file is never looked at: that would run its code.
    """
    name, colon, values = begun.partition(":")
    if not colon or name not in known:
        return _offered(told, begun)
    done, comma, key = values.rpartition(",")
    head = f"{name}:{done}{comma}"
    taken = {pair.partition("=")[0] for pair in done.split(",")}
    found: list[str] = []
    for p in known[name].parameters:
        given = _VALUES if p.default is None else (p.default,)
        found += [f"{p.name}={value}" for value in given if p.name not in taken]
    found += [text for text in more if text.partition("=")[0] not in taken]
    return [CompletionItem(f"{head}{text}", help=f"of {name}") for text in found if text.startswith(key)]


def programs(_ctx: click.Context, _param: click.Parameter, begun: str) -> list[CompletionItem]:
    """Offers the algorithms of the library, or files; after a colon parameters and options of compiling."""
    known = catalogue()
    more = (*(f"protocol={name}" for name in datatypes.PROTOCOLS), "instances=2", "in_place=yes")
    return _completed(known, {name: a.good_for for name, a in known.items()}, begun, more)


def machines(_ctx: click.Context, _param: click.Parameter, begun: str) -> list[CompletionItem]:
    """Offers the machines that come with gc3, or files."""
    known = topologies.catalogue()
    return _completed(known, {name: preset.summary for name, preset in known.items()}, begun)


def codes(_ctx: click.Context, _param: click.Parameter, begun: str) -> list[CompletionItem]:
    """Offers the codes of errors."""
    return [CompletionItem(e.code, help=e.title) for e in _core.all_errors() if e.code.startswith(begun.upper())]


def problems(_ctx: click.Context, _param: click.Parameter, begun: str) -> list[CompletionItem]:
    """Offers the collectives, or files."""
    return _offered({name: c.summary for name, c in collectives.BUILTIN.items()}, begun)
