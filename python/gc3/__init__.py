"""Programmable collective communication: write, prove, compile and run your own collectives."""

from gc3 import collectives
from gc3.errors import CommError, Gc3Error, InternalError, UserError
from gc3.program import Program, Report, verify

__version__ = "0.1.0"
__all__ = [
    "CommError",
    "Gc3Error",
    "InternalError",
    "Program",
    "Report",
    "UserError",
    "__version__",
    "collectives",
    "verify",
]
