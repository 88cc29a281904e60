"""Runs scripts of MSCCLang (microsoft/msccl-tools) as they are: compiled, proven and written by gc3.

While a script runs, an import hook serves ``msccl.language``, ``msccl.topologies`` and ``msccl.collectives``; nothing
called msccl needs to be installed, and outside of such a run nothing is served.
"""

from gc3.mscclang.program import MSCCLProgram
from gc3.mscclang.script import ArgumentsRefused, imports_msccl, run

__all__ = ["ArgumentsRefused", "MSCCLProgram", "imports_msccl", "run"]
