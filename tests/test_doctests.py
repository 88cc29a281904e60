"""Every example in a docstring holds."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import gc3

MODULES = sorted(
    m.name for m in pkgutil.walk_packages(gc3.__path__, "gc3.") if m.name not in ("gc3._core", "gc3.__main__")
)


@pytest.mark.parametrize("name", ["gc3", *MODULES])
def test_examples_hold(name: str) -> None:
    failed, _ = doctest.testmod(importlib.import_module(name))
    assert failed == 0


def test_there_are_examples() -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = [t for name in MODULES for t in finder.find(importlib.import_module(name)) if t.examples]
    assert len(found) > 15
