"""Finds an algorithm by name or in a file."""

from __future__ import annotations

import difflib
import importlib.util
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

from gc3 import errors
from gc3.algorithms import _sccl_json
from gc3.algorithms._catalogue import catalogue, find
from gc3.collectives import Collective
from gc3.lang import Algorithm, stepwise
from gc3.support.words import split_values

_WITHOUT = "a function without @gc3.algorithm(collective, ranks=...), which makes it one"


def load(spec: str) -> Algorithm:
    """Returns the algorithm that `spec` names: of the catalogue, `path/to/file.py:function`, or `path/to/file.json`.

    JSON is the format of SCCL-style synthesizers.

    A file with a single algorithm may be given without the function. The file runs as a separate module, with its
    folder on the import path while it loads. After the function, `:name=value,...` are parameters' new defaults.

    Raises:
        gc3.UserError: There is no such file, function, algorithm or parameter.
    """
    try:
        name, given = split_values(spec) if ".py:" in spec else (spec, {})
        defaults = {key: int(value, 0) for key, value in given.items()}
    except ValueError:
        raise errors.error("BadArgument", f"'{spec}': expected PATH.py:FUNCTION:NAME=NUMBER,...") from None
    found = _found(name)
    return found.with_defaults(defaults) if defaults else found


def _found(spec: str) -> Algorithm:
    if spec.endswith(".json"):
        return stepwise(_sccl_json.read(spec))
    path, separator, function = spec.partition(":")
    if not path.endswith(".py"):
        known = find(spec)
        if known is None:
            close = difflib.get_close_matches(spec, catalogue(), 3)
            meant = f"did you mean {' or '.join(close)}?" if close else "gc3 list shows the algorithms"
            raise errors.error("BadArgument", f"there is no algorithm '{spec}'; {meant}")
        return known
    file = _readable(path)
    module = _module(file)
    found = {a.name: a for a in _algorithms_of(module)}
    by_attribute = {a.function.__name__: a for a in found.values()}
    if separator:
        chosen = by_attribute.get(function) or found.get(function)
        if chosen is None:
            plain = getattr(module, function, None)
            if isinstance(plain, FunctionType):
                text = f"'{function}' is {_WITHOUT}"
                line = plain.__code__.co_firstlineno
            else:
                text, line = f"it has {', '.join(by_attribute) or 'none'}", 1
            raise errors.error(
                "BadArgument", f"'{path}' has no algorithm '{function}'; {text}", file=str(file), line=line
            )
        return chosen
    if len(found) > 1:
        text = f"'{path}' has {len(found)} algorithms: name one as {path}:NAME, NAME being {', '.join(by_attribute)}"
        raise errors.error("BadArgument", text, file=str(file), line=1)
    if not found:
        plain = [f for f in vars(module).values() if isinstance(f, FunctionType) and f.__module__ == module.__name__]
        text = f"'{plain[0].__name__}' is {_WITHOUT}" if plain else "a function with @gc3.algorithm(collective) is one"
        line = plain[0].__code__.co_firstlineno if plain else 1
        raise errors.error("BadArgument", f"'{path}' has no algorithm; {text}", file=str(file), line=line)
    return next(iter(found.values()))


class _Loader(SourceFileLoader):
    """Compiles the file every time, because the bytecode cache misses changes within one second."""

    def get_code(self, fullname: str) -> CodeType:
        """Returns the code of the current content of the file."""
        path = self.get_filename(fullname)
        try:
            return self.source_to_code(self.get_data(path), path)
        except ValueError as problem:  # a zero byte, in some versions of Python
            raise SyntaxError(str(problem), (path, 1, None, None)) from None


def load_collective(path: str, name: str) -> Collective:
    """Returns the collective called `name` in a Python file: a `Collective`, or a function that returns one.

    Raises:
        gc3.UserError: There is no such file or collective.
    """
    module = _module(_readable(path))
    found = getattr(module, name, None)
    if callable(found) and not isinstance(found, (Collective, Algorithm)):
        found = found()
    if not isinstance(found, Collective):
        known = ", ".join(n for n, value in vars(module).items() if isinstance(value, Collective)) or "none"
        raise errors.error("BadArgument", f"'{path}' has no collective '{name}'; it has {known}", file=path, line=1)
    if found.data is None or found.open:
        raise errors.error(
            "BadArgument",
            f"'{name}' states no result of its own, so nothing can be proven of a file",
            file=path,
            line=1,
        )
    return found


def _readable(path: str) -> Path:
    file = Path(path)
    try:
        file.open("rb").close()
    except OSError as problem:
        raise errors.error("FileUnreadable", f"'{path}': {problem.strerror}") from None
    return file


def _algorithms_of(module: ModuleType) -> list[Algorithm]:
    return [a for a in vars(module).values() if isinstance(a, Algorithm) and a.function.__module__ == module.__name__]


def _module(file: Path) -> ModuleType:
    """Runs a Python file as a separate module."""
    name = f"gc3_user_{file.stem}"
    spec = importlib.util.spec_from_loader(name, _Loader(name, str(file.absolute())))
    if spec is None or spec.loader is None:
        raise errors.error("FileUnreadable", f"'{file}' is not a Python file")
    module = importlib.util.module_from_spec(spec)
    folder = str(file.resolve().parent)
    sys.path.insert(0, folder)
    sys.modules[name] = module  # dataclasses and pickle look up a class's module here
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    finally:
        if folder in sys.path:
            sys.path.remove(folder)
    return module
