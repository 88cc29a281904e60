"""Defects to plant, by area; see `mutants.py`.

Each module of this package has a tuple MUTANTS. An entry is worth having if it is a mistake that somebody could make,
if the program stays plausible with it, and if the named tests take seconds.
"""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutant:
    """A defect and the tests that must find it.

    Attributes:
        name: What it is called; unique.
        file: Where it is planted, from the top of the repository.
        old: Text that occurs exactly once in that file.
        new: What stands there instead.
        tests: What is run: a C++ test program, with doctest's options if need be, or arguments of pytest. The first
            that fails ends the run.
        equivalent: Why no test can find it; empty: one must.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    equivalent: str = ""


def load() -> list[Mutant]:
    """Returns the entries of all modules of this package, by name of the module and in their order."""
    modules = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return [m for name in modules for m in importlib.import_module(f"{__name__}.{name}").MUTANTS]
