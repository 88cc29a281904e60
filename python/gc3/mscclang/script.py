"""Runs a script with the modules of msccl-tools in place."""

from __future__ import annotations

import ast
import importlib.abc
import importlib.machinery
import os
import runpy
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from gc3.mscclang import machines, program, purpose, values
from gc3.mscclang.program import MSCCLProgram, Record

_TOP = "msccl"


class ArgumentsRefused(Exception):  # noqa: N818  not an error of gc3
    """The script ended because of its arguments, and has said why."""


def _public(*modules: ModuleType) -> dict[str, Any]:
    """The public classes and functions that modules define."""
    return {
        name: value
        for module in modules
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", "") == module.__name__
    }


_LANGUAGE = {
    **_public(values),
    **{
        name: getattr(program, name)
        for name in ("MSCCLProgram", "Ref", "chunk", "Check", "XML", "Print", "create_scratch")
    },
}
_COLLECTIVES = {
    name: getattr(purpose, name) for name in ("Collective", "AllReduce", "AllGather", "AllToAll", "ReduceScatter")
}
_TOPOLOGIES = _public(machines)
_MODULES: dict[str, dict[str, Any]] = {
    "msccl": {},
    "msccl.language": _LANGUAGE,
    "msccl.language.buffer": _public(values),
    "msccl.language.chunk": _public(values),
    "msccl.language.ir": _public(values),
    "msccl.language.collectives": {**_LANGUAGE, **_COLLECTIVES},
    "msccl.collectives": _COLLECTIVES,
    "msccl.topologies": _TOPOLOGIES,
    "msccl.topologies.distributed": _TOPOLOGIES,
    "msccl.topologies.generic": _TOPOLOGIES,
    "msccl.topologies.nvidia": _TOPOLOGIES,
    "msccl.topologies.topology": _TOPOLOGIES,
}


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds and makes the modules of the table."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Returns the spec of a module of the table."""
        del path, target
        if fullname not in _MODULES:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        """Leaves it to Python."""
        del spec

    def exec_module(self, module: ModuleType) -> None:
        """Fills the module."""
        names = _MODULES[module.__name__]
        vars(module).update(names, __all__=sorted(names))


@contextmanager
def _served() -> Generator[None, None, None]:
    """Serves the modules, in the place of an installed msccl, until the block ends."""

    def take() -> dict[str, ModuleType]:
        names = [name for name in sys.modules if name == _TOP or name.startswith(_TOP + ".")]
        return {name: sys.modules.pop(name) for name in names}

    before, finder = take(), _Finder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        take()
        sys.modules.update(before)


def imports_msccl(path: str) -> bool:
    """Returns whether a Python file imports msccl, so that it is a script for `run`; False if it cannot be read."""
    try:
        with open(path, "rb") as file:
            tree = ast.parse(file.read(), path)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    for node in ast.walk(tree):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if any(name.partition(".")[0] == _TOP for name in names):
            return True
    return False


def run(path: str, arguments: Sequence[str] = (), *, prints_xml: bool = False) -> list[MSCCLProgram]:
    """Runs a script and returns its programs, traced.

    Args:
        path: The script.
        arguments: Its command line.
        prints_xml: Whether its XML() prints, as in msccl-tools; the program is compiled for that.

    Raises:
        gc3.UserError: It misuses a chunk, or a program that it prints is wrong.
        ArgumentsRefused: It ended with an exit status that is not 0.
        Exception: Whatever else the script raises.
    """
    kept = Record(prints_xml)
    token = program.record.set(kept)
    argv, folder = sys.argv, os.path.dirname(os.path.abspath(path))
    sys.argv = [path, *arguments]
    sys.path.insert(0, folder)
    try:
        with _served():
            runpy.run_path(path, run_name="__main__")
    except SystemExit as problem:
        if problem.code not in (None, 0):
            raise ArgumentsRefused(str(problem.code)) from None
    finally:
        sys.argv = argv
        if folder in sys.path:
            sys.path.remove(folder)
        program.record.reset(token)
    return kept.programs
