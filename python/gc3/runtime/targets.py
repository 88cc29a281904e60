"""How the runtimes that read MSCCL XML treat a given file: what they refuse, and what they execute.

A runtime is "msccl" (microsoft/msccl), "azure" (the Azure executor) or "rccl" (RCCL). The core knows how each of them
reads a file (``cpp/gc3/ir/xml_runtime.h``). The program that the runtime executes is then proven like any other.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gc3 import _core, errors
from gc3.runtime.program import Program, Report, verify

if TYPE_CHECKING:
    from collections.abc import Sequence

NAMES = tuple(_core.xml_targets())


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a runtime that executes a file implements its collective."""

    runtime: str  # one of `NAMES`
    # the program that the runtime executes in each mode it uses the file for, and its proof
    modes: tuple[tuple[Program, Report], ...]
    refused: tuple[_core.Diagnostic, ...] = ()  # why the runtime cannot load or use the file; empty if it can

    @property
    def ok(self) -> bool:
        """Whether the runtime accepts the file, and it is proven in every mode."""
        return not self.diagnostics

    @property
    def diagnostics(self) -> tuple[_core.Diagnostic, ...]:
        """The refusals and findings."""
        return (*self.refused, *(d for _, report in self.modes for d in report.diagnostics))


def judge(
    path: str | os.PathLike[str],
    runtime: str,
    *,
    collective: str | _core.Collective = "",
    in_place: bool | None = None,
    max_diagnostics: int = 10,
) -> Verdict:
    """Checks whether a runtime that executes a file of MSCCL XML implements its collective, for all allowed sizes.

    Args:
        path: The file.
        runtime: One of `NAMES`.
        collective: The collective of a file that does not name one itself (``coll="custom"``).
        in_place: The mode to check; None: all modes that the runtime uses the file for.
        max_diagnostics: Stop after this many findings in a mode.

    Raises:
        gc3.UserError: There is no such file or runtime, or the file is not MSCCL XML or does not name its collective.
    """
    if runtime not in NAMES:
        raise errors.error("BadArgument", f"there is no runtime '{runtime}'; expected one of {', '.join(NAMES)}")
    modes: list[tuple[Program, Report]] = []
    try:
        first = Program.load(path, collective=collective, in_place=in_place, runtime=runtime)
        modes.append((first, _proof(first, max_diagnostics)))
        if in_place is None and first.use is not None and first.use.in_place and first.use.out_of_place:
            other = Program.load(path, collective=collective, in_place=not first.in_place, runtime=runtime)
            modes.append((other, _proof(other, max_diagnostics)))
    except errors.UserError as problem:
        if problem.diagnostics[0].name not in ("BadXml", "TargetLimit"):
            raise
        return Verdict(runtime, tuple(modes), problem.diagnostics)
    return Verdict(runtime, tuple(modes))


def judge_all(
    path: str | os.PathLike[str],
    *,
    collective: str | _core.Collective = "",
    in_place: bool | None = None,
    max_diagnostics: int = 10,
) -> Sequence[Verdict]:
    """Returns the verdict for each runtime; none for a file that is not MSCCL XML."""
    if not _core.is_xml(os.fsdecode(path)):
        return ()
    return [
        judge(path, name, collective=collective, in_place=in_place, max_diagnostics=max_diagnostics) for name in NAMES
    ]


def _proof(program: Program, max_diagnostics: int) -> Report:
    return verify(program, max_diagnostics=max_diagnostics, chunk_per_slot=True, check=False)
