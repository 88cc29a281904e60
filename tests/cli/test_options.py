"""How much there is to learn: options and parameters, which must not become more by and by."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import gc3.cli
from gc3.cli.command import WithFurther
from gc3.cli.main import main

pytestmark = pytest.mark.python_only


def commands(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    """Yields the leaf commands with their names."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for each in command.list_commands(context):
            found = command.get_command(context, each)
            assert found is not None
            yield from commands(found, f"{name} {each}")
        return
    yield name, command
    if isinstance(command, WithFurther):
        for each, further in command.further.items():
            yield from commands(further, f"{name} {each}")


def test_options_are_few() -> None:
    found = {
        name: sum(isinstance(parameter, click.Option) for parameter in command.params)
        for name, command in commands(main, "gc3")
    }
    assert {name: count for name, count in found.items() if count > 16} == {}
    assert sum(found.values()) <= 200, found


def test_functions_have_few_parameters() -> None:
    many: list[str] = []
    for path in Path(gc3.cli.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                count = len(node.args.args) + len(node.args.kwonlyargs)
                many += [f"{path.name}:{node.lineno} {node.name}: {count}"] * (count > 8)
    assert many == []
