"""Programmable collective communication: write, prove, compile and run your own collectives."""

from __future__ import annotations

import importlib as _importlib
import importlib.util as _util
import typing as _typing

if _typing.TYPE_CHECKING:
    from gc3 import algorithms, collectives, cuda, nccl, sim, synth, topologies, torch, tune
    from gc3.comm import Communicator, Handle, Recv, Send, Status, Transfer, empty, init
    from gc3.comm.selected import Selected, select
    from gc3.comm.spawn import spawn
    from gc3.computing import op, sequential
    from gc3.datatypes import PreMulSum
    from gc3.errors import CommError, Gc3Error, InternalError, UserError
    from gc3.lang import Algorithm, SourceProgram, algorithm, chunk, compile, dump, me, next_step, parallelize
    from gc3.runtime.direct import DirectProgram
    from gc3.runtime.options import EngineOptions
    from gc3.runtime.program import Program, Report, verify

__version__ = "0.1.0"
__all__ = [
    "Algorithm",
    "CommError",
    "Communicator",
    "DirectProgram",
    "EngineOptions",
    "Gc3Error",
    "Handle",
    "InternalError",
    "PreMulSum",
    "Program",
    "Recv",
    "Report",
    "Selected",
    "Send",
    "SourceProgram",
    "Status",
    "Transfer",
    "UserError",
    "__version__",
    "algorithm",
    "algorithms",
    "chunk",
    "collectives",
    "compile",
    "cuda",
    "dump",
    "empty",
    "init",
    "me",
    "nccl",
    "next_step",
    "op",
    "parallelize",
    "select",
    "sequential",
    "sim",
    "spawn",
    "synth",
    "topologies",
    "torch",
    "tune",
    "verify",
]
# The modules of the names above that are not modules themselves. They are imported on first use. If NumPy and the core
# were imported here, no code could catch a Ctrl-C during the import, since this runs before any other module.
_HOMES = {
    "gc3.comm": ("Communicator", "Handle", "Recv", "Send", "Status", "Transfer", "empty", "init"),
    "gc3.comm.selected": ("Selected", "select"),
    "gc3.comm.spawn": ("spawn",),
    "gc3.computing": ("op", "sequential"),
    "gc3.datatypes": ("PreMulSum",),
    "gc3.errors": ("CommError", "Gc3Error", "InternalError", "UserError"),
    "gc3.lang": (
        "Algorithm",
        "SourceProgram",
        "algorithm",
        "chunk",
        "compile",
        "dump",
        "me",
        "next_step",
        "parallelize",
    ),
    "gc3.runtime.direct": ("DirectProgram",),
    "gc3.runtime.options": ("EngineOptions",),
    "gc3.runtime.program": ("Program", "Report", "verify"),
}


def __getattr__(name: str) -> _typing.Any:
    """Imports a name of `__all__`, or a module of the package."""
    home = next((home for home, names in _HOMES.items() if name in names), None)
    if home is not None:
        found = getattr(_importlib.import_module(home), name)
        found = _importlib.import_module("gc3.support.public").public(found)
    elif name.startswith("__") or _util.find_spec(f"gc3.{name}") is None:
        raise AttributeError(f"module 'gc3' has no attribute '{name}'")
    else:
        found = _importlib.import_module(f"gc3.{name}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """Lists the public names, used or not."""
    return list(__all__)
