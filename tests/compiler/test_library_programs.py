"""The text form of the library's programs, as golden files, which the verifier's mutation test also uses."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import gc3
from gc3 import _core
from gc3.algorithms import load

CASES: list[tuple[str, dict[str, int], dict[str, int | bool | str]]] = [
    ("ring_allreduce", {"R": 3}, {}),
    ("ring_allreduce", {"R": 4, "channels": 2}, {"slots": 1}),
    ("ring_allreduce", {"R": 2}, {"instances": 2, "in_place": False}),
    ("allpairs_allreduce", {"R": 3}, {}),
    ("allpairs_allreduce", {"R": 2, "chunks": 2}, {"in_place": False}),
    ("hierarchical_allreduce", {"N": 2, "G": 2}, {}),
    ("hierarchical_allreduce", {"N": 2, "G": 3}, {}),
    ("two_step_alltoall", {"N": 2, "G": 2}, {}),
    ("two_step_alltoall", {"N": 2, "G": 2}, {"in_place": True, "max_threadblocks": 3}),
    ("alltonext", {"N": 2, "G": 3}, {}),
]


@pytest.mark.parametrize(("name", "parameters", "options"), CASES)
def test_library_program(
    name: str, parameters: dict[str, int], options: dict[str, int | bool | str], golden: Callable[..., None]
) -> None:
    program = gc3.compile(load(name), **options, **parameters)  # pyright: ignore[reportArgumentType]
    assert program.verify().ok
    spelled = "-".join([name, *(f"{k}{v}" for k, v in {**parameters, **options}.items())])
    text = program.core.to_text()
    golden(text, spelled)
    assert _core.Program.from_text(text, "golden") == program.core
