"""Defects to plant, by area; see `mutants.py`.

Each module of this package has a tuple MUTANTS. An entry is useful if it is a plausible mistake, if the program still
looks right with it, and if the named tests take seconds.
"""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutant:
    """A defect and the tests that must find it.

    Attributes:
        name: A unique name.
        file: The file to change, from the top of the repository.
        old: Text that occurs exactly once in that file.
        new: Its replacement.
        tests: What to run: a C++ test program, with doctest's options if need be, or arguments of pytest. The first
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
