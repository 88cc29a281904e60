"""Finds the algorithms of this folder: one file, one algorithm."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from pathlib import Path

from gc3.lang import Algorithm


@cache
def _names() -> frozenset[str]:
    """The modules of this folder, each of which has the name of its algorithm."""
    return frozenset(m.name for m in pkgutil.iter_modules([str(Path(__file__).parent)]) if not m.name.startswith("_"))


@cache
def find(name: str) -> Algorithm | None:
    """Returns the algorithm of the library with this name, and loads no other; None: there is none.

    >>> find("ring_allreduce").collective_name
    'allreduce'
    """
    if name not in _names():
        return None
    loaded = importlib.import_module(f"{__package__}.{name}")
    own = [a for a in vars(loaded).values() if isinstance(a, Algorithm) and a.function.__module__ == loaded.__name__]
    return next((a for a in own if a.name == name), None)


def catalogue() -> dict[str, Algorithm]:
    """Returns every algorithm of the library by name.

    >>> catalogue()["ring_allreduce"].collective_name
    'allreduce'
    """
    return {name: found for name in sorted(_names()) if (found := find(name)) is not None}
