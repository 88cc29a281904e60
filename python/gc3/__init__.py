"""Programmable collective communication: write, prove, compile and run your own collectives."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gc3 import collectives
    from gc3.comm import Communicator, Handle, empty, init
    from gc3.errors import CommError, Gc3Error, InternalError, UserError
    from gc3.lang import Algorithm, SourceProgram, algorithm, chunk, compile, dump, parallelize
    from gc3.program import EngineOptions, Program, Report, verify

__version__ = "0.1.0"
__all__ = [
    "Algorithm",
    "CommError",
    "Communicator",
    "EngineOptions",
    "Gc3Error",
    "Handle",
    "InternalError",
    "Program",
    "Report",
    "SourceProgram",
    "UserError",
    "__version__",
    "algorithm",
    "chunk",
    "collectives",
    "compile",
    "dump",
    "empty",
    "init",
    "parallelize",
    "verify",
]
# Where the names above are, which are imported when they are first used. Were NumPy and the core loaded right here,
# nobody could catch the Ctrl-C that interrupts it: this runs before any other module of the package.
_HOMES = {
    "gc3.comm": ("Communicator", "Handle", "empty", "init"),
    "gc3.errors": ("CommError", "Gc3Error", "InternalError", "UserError"),
    "gc3.lang": ("Algorithm", "SourceProgram", "algorithm", "chunk", "compile", "dump", "parallelize"),
    "gc3.program": ("EngineOptions", "Program", "Report", "verify"),
}


def __getattr__(name: str) -> Any:
    """Finds a name of `__all__`, or a module of the package."""
    home = next((home for home, names in _HOMES.items() if name in names), None)
    if home is not None:
        found = getattr(importlib.import_module(home), name)
    elif name.startswith("__") or not _is_module(name):
        raise AttributeError(f"module 'gc3' has no attribute '{name}'")
    else:
        found = importlib.import_module(f"gc3.{name}")
    globals()[name] = found
    return found


def _is_module(name: str) -> bool:
    return importlib.util.find_spec(f"gc3.{name}") is not None


def __dir__() -> list[str]:
    """Names what there is before it is used."""
    return sorted({*globals(), *__all__})
