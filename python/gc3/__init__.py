"""Programmable collective communication: write, prove, compile and run your own collectives."""

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
