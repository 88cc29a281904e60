"""Finds the algorithms of this folder: one file, one algorithm."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from pathlib import Path

from gc3.lang import Algorithm


@cache
def _discover() -> tuple[Algorithm, ...]:
    found: list[Algorithm] = []
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        if module.name.startswith("_"):
            continue
        loaded = importlib.import_module(f"{__package__}.{module.name}")
        found += [
            a for a in vars(loaded).values() if isinstance(a, Algorithm) and a.function.__module__ == loaded.__name__
        ]
    return tuple(sorted(found, key=lambda a: a.name))


def catalogue() -> dict[str, Algorithm]:
    """Returns every algorithm of the library by name.

    >>> catalogue()["ring_allreduce"].collective_name
    'allreduce'
    """
    return {a.name: a for a in _discover()}
