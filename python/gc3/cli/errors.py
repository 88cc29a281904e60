"""gc3 errors."""

from __future__ import annotations

import click

from gc3 import _core
from gc3.cli import completion, options, output
from gc3.cli.command import Command

_WHOSE = {
    "User": "a mistake in the input of gc3",
    "Internal": "a defect of gc3",
    "Comm": "a peer that failed or a deadline that passed",
}


@click.command(
    "errors",
    cls=Command,
    long=True,
    examples=[
        "gc3 errors GC3-L001",
        "gc3 errors stale",
        "gc3 errors --json",
    ],
)
@click.argument("code", required=False, shell_complete=completion.codes)
@options.json_option
def errors_command(code: str | None, as_json: bool) -> None:
    """Explain an error code, or list them all."""
    wanted = "" if code is None else code.lower()
    table = _core.all_errors()
    found = [e for e in table if wanted == e.code.lower()] or [
        e for e in table if wanted in f"{e.code} {e.name} {e.title}".lower()
    ]
    if not found:
        raise click.BadParameter(f"no error matches '{code}'; `gc3 errors` lists them", param_hint="CODE")
    if as_json:
        rows = [
            {"code": e.code, "name": e.name, "kind": e.kind.name.lower(), "title": e.title, "hint": e.hint}
            for e in found
        ]
        output.emit({"errors": rows})
        return
    for error in found:
        click.echo(f"{click.style(error.code, bold=True)} {error.title}")
        if code is not None:
            click.echo(f"  {_WHOSE[error.kind.name]}")
            if error.hint:
                click.echo(f"  what to do: {error.hint}")
