"""The examples in the docstrings are right."""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import pkgutil

import pytest

import gc3

pytestmark = pytest.mark.python_only

HIDDEN = ("gc3._core", "gc3.__main__")
NEEDS_PYTORCH = () if importlib.util.find_spec("torch") else ("gc3.torch.",)
MODULES = sorted(
    m.name
    for m in pkgutil.walk_packages(gc3.__path__, "gc3.")
    if m.name not in HIDDEN and not m.name.startswith(NEEDS_PYTORCH)
)


@pytest.mark.parametrize("name", ["gc3", *MODULES])
def test_examples(name: str) -> None:
    module = importlib.import_module(name)
    assert doctest.testmod(module, optionflags=doctest.ELLIPSIS).failed == 0


def test_some_examples_were_found() -> None:
    modules = [importlib.import_module(name) for name in MODULES]
    finder = doctest.DocTestFinder(exclude_empty=True)
    assert sum(bool(test.examples) for module in modules for test in finder.find(module)) > 15
