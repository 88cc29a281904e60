"""A one-sided program: ranks load from and store into each other's registered buffers, and signals say when."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gc3 import _core, collectives, datatypes, errors
from gc3.runtime.buffers import bind
from gc3.runtime.executable import Executable
from gc3.runtime.options import EngineOptions
from gc3.runtime.program import Program, Report, ending_of
from gc3.support import files, knobs
from gc3.support.public import public

if TYPE_CHECKING:
    import numpy.typing as npt

    from gc3.datatypes import Array


@dataclass(frozen=True, eq=False, repr=False)
class DirectProgram(Executable["_core.DirectProgram"]):
    """An executable program of one-sided moves, the other kind beside `gc3.Program`. Immutable.

    Made by ``gc3.compile(..., memory="direct")``, or read from a file.

    Attributes:
        core: The program as an object of the core.
        messages: The same algorithm as messages, for memory that is not registered; None: it was read from a file.
    """

    core: _core.DirectProgram
    messages: Program | None = None
    _engines: dict[EngineOptions, _core.DirectEngine] = field(default_factory=dict[EngineOptions, "_core.DirectEngine"])

    @staticmethod
    def load(path: str | os.PathLike[str]) -> DirectProgram:
        """Reads the text form.

        Raises:
            gc3.UserError: It cannot be read.
        """
        name = os.fsdecode(path)
        return DirectProgram(_core.DirectProgram.from_text(files.read_text(name, "FileUnreadable"), name))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the text form (.txt) or an execution plan of MSCCL++ (.plan.json), which is proven first.

        A file of that name is replaced atomically. The plan does what the program does; where its executor cannot, the
        plan of the same algorithm compiled without ``memory="direct"`` can, as then whoever has a value stores it.

        Raises:
            gc3.UserError: The file has another ending or cannot be written, or MSCCL++'s executor cannot run it.
        """
        name = os.fsdecode(path)
        ending = ending_of(name)
        if ending == ".plan.json":
            from gc3 import mscclpp  # noqa: PLC0415  slow to import for each rank, and few save plans

            mscclpp.save(self.core, name)
        elif ending == ".txt" or files.is_device(name):
            files.replace_text(name, self.text)
        else:
            raise errors.error("BadArgument", f"'{name}': a one-sided program is written as .txt or .plan.json")

    def verify(self) -> Report:
        """Proves that the program implements its collective, call after call, without races and deadlocks.

        Returns:
            The report; its `transfers` are the chunks that a call loads from or stores to other ranks.

        Raises:
            gc3.UserError: The findings.
        """
        found = _core.verify(self.core)
        if found.diagnostics:
            raise errors.UserError(*found.diagnostics)
        return Report((), found.slots, found.transfers)

    def run(
        self,
        inputs: Sequence[npt.ArrayLike | None],
        *,
        op: datatypes.Op = "sum",
        outputs: Sequence[Array | None] | None = None,
        count: int | None = None,
        dtype: npt.DTypeLike | str | None = None,
        workers: int = 0,
        timeout: float | None = None,
    ) -> list[Array | None]:
        """Runs the program on this machine's CPU, with ranks as threads; see `gc3.Program.run`.

        It is proven before its first run.
        """
        bound = bind(self.collective, inputs, outputs, count, dtype)
        self.engine(EngineOptions(workers=workers, timeout=timeout)).run(*bound.call(op))
        return bound.finish()

    def engine(self, options: EngineOptions) -> _core.DirectEngine:
        """Returns the engine of threads with these options, made on first use."""
        engine = self._engines.get(options)
        if engine is None or not engine.usable:
            self.verify()
            set_up = knobs.read()
            engine = _core.DirectEngine(
                self.core,
                workers=options.workers or set_up.workers,
                timeout=set_up.timeout if options.timeout is None else options.timeout,
                pin=set_up.pin != "0",
            )
            self._engines.clear()
            self._engines[options] = engine
        return engine

    def info(self) -> dict[str, Any]:
        """Returns the properties of the program as plain data."""
        collective = self.collective
        return {
            "name": self.name,
            "collective": collective.name,
            "ranks": collective.ranks,
            "chunks": collective.chunks,
            "root": collective.root if collectives.rooted(collective) else None,
            "in_place": collective.in_place,
            "memory": "direct",
            "threadblocks": self.core.threadblock_count,
            "max_threadblocks_per_rank": max(self.core.threadblocks_per_rank, default=0),
            "steps": self.core.step_count,
        }

    def __reduce__(self) -> tuple[Any, ...]:
        """A program is pickled and copied as its text, and the messages of the same algorithm."""
        return _of_text, (self.text, self.messages)

    def __hash__(self) -> int:
        """Consistent with equality."""
        return hash((self.core.name, self.core.step_count, self.core.operand_count))

    def __repr__(self) -> str:
        """Describes it in one line."""
        mode = "in place" if self.in_place else "out of place"
        return f"<gc3.DirectProgram {self.name}: {self.collective.name}, {self.ranks} ranks, {mode}>"


def _of_text(text: str, messages: Program | None) -> DirectProgram:
    return DirectProgram(_core.DirectProgram.from_text(text, "a pickled program"), messages)


public(DirectProgram)
