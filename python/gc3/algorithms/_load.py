"""Finding an algorithm by name or in a file."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from gc3 import errors
from gc3.algorithms import _synthesized
from gc3.algorithms._catalogue import catalogue
from gc3.lang import Algorithm


def load(spec: str) -> Algorithm:
    """Returns the algorithm that `spec` names: of the catalogue, `path/to/file.py:function`, or `path/to/file.json`.

    JSON is what SCCL-style synthesizers write.

    A file with a single algorithm may be named without the function. The file runs as a module of its own, with its
    folder on the import path while it loads.

    Raises:
        gc3.UserError: There is no such file, function or algorithm.
    """
    if spec.endswith(".json"):
        return _synthesized.load(spec)
    path, separator, function = spec.partition(":")
    if not path.endswith(".py"):
        known = catalogue()
        if spec not in known:
            raise errors.error("BadArgument", f"there is no algorithm '{spec}'; known are {', '.join(known)}")
        return known[spec]
    file = Path(path)
    if not file.is_file():
        raise errors.error("FileUnreadable", f"'{path}' does not exist")
    found = {a.name: a for a in _algorithms_of(file)}
    by_attribute = {a.function.__name__: a for a in found.values()}
    if separator:
        chosen = by_attribute.get(function) or found.get(function)
        if chosen is None:
            raise errors.error(
                "BadArgument",
                f"'{path}' has no algorithm '{function}'; it has {', '.join(by_attribute) or 'none'}",
                file=str(file),
                line=1,
            )
        return chosen
    if len(found) != 1:
        raise errors.error(
            "BadArgument", f"'{path}' has {len(found)} algorithms: name one as {path}:NAME", file=str(file), line=1
        )
    return next(iter(found.values()))


def _algorithms_of(file: Path) -> list[Algorithm]:
    spec = importlib.util.spec_from_file_location(f"gc3_user_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise errors.error("FileUnreadable", f"'{file}' is not a Python file")
    module = importlib.util.module_from_spec(spec)
    folder = str(file.resolve().parent)
    sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(folder)
    own = str(file)
    return [a for a in vars(module).values() if isinstance(a, Algorithm) and Path(a.file).samefile(own)]
