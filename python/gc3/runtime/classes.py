"""Programs of which one rank stands for all: compiled, proven and shown at the cost of one rank."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from gc3 import _core, errors
from gc3.runtime import scratch
from gc3.runtime.program import Program, Use


class ClassProgram(Program):
    """A program that was written from the view of one rank.

    Whatever needs the steps of all ranks makes them when it first asks for them, if they are not too many.
    """

    def __init__(self, classes: _core.ClassProgram, use: Use | None = None) -> None:
        """Takes the program as the core has it, and the calls that its file allows it for."""
        own: dict[str, Any] = {"classes": classes, "use": use, "declared": {}, "_engines": {}, "_proven": set[int]()}
        for name, value in own.items():
            object.__setattr__(self, name, value)

    classes: _core.ClassProgram

    @property
    def core(self) -> _core.Program:  # type: ignore[override]  # pyright: ignore[reportIncompatibleVariableOverride]
        """The program of all ranks.

        Raises:
            gc3.UserError: It would be too large.
        """
        return self._whole

    @cached_property
    def _whole(self) -> _core.Program:
        return self.classes.expand()

    @property
    def whole(self) -> Program:
        """The same program with the steps of all ranks."""
        return Program(self.core, self.use)

    @property
    def expands(self) -> bool:
        """Whether the program of all ranks is not too large."""
        try:
            return bool(self.core)
        except errors.UserError:
            return False

    @property
    def described(self) -> _core.Program:
        """Rank 0, whose steps stand for those of all ranks: another one has its number added."""
        return self.classes.representative

    @property
    def stored(self) -> _core.ClassProgram:
        """What its files contain: one rank."""
        return self.classes

    def _save_xml(self, *how: Any) -> None:
        _core.save_xml(self.classes, *how)

    @property
    def text(self) -> str:
        """The text form, for people."""
        return self.classes.to_text()

    def of_rank(self, rank: int) -> tuple[_core.Program, int]:
        """The steps of this rank alone."""
        return self.classes.expand_rank(rank), 0

    @property
    def protocol(self) -> str:
        """``Simple``, ``LL`` or ``LL128``."""
        return self.classes.representative.protocol

    def prove(self, *limits: Any) -> _core.VerifyReport:
        """Returns what the verifier finds on the rank that stands for all: see `gc3.verify`."""
        *proven, _properties = limits  # of operations, which it has none of
        return _core.verify_classes(self.classes, *proven)

    def info(self) -> dict[str, Any]:
        """Returns the properties of the program as plain data."""
        one, ranks = self.classes.representative, self.ranks
        return {
            "name": self.name,
            "collective": self.collective.name,
            "ranks": ranks,
            "classes": 1,
            "chunks": self.collective.chunks,
            "root": None,
            "in_place": self.in_place,
            "protocol": self.protocol,
            "instances": one.instances,
            "slots": one.slots,
            "threadblocks": ranks * one.threadblock_count,
            "max_threadblocks_per_rank": one.threadblock_count,
            "scratch_share": str(scratch.share(one)),
            "instructions": ranks * one.instruction_count,
            "dependencies": ranks * one.dependency_count,
        }

    def __eq__(self, other: object) -> bool:
        """Programs are equal if they do the same, wherever they were written."""
        if isinstance(other, ClassProgram):
            return self.classes.to_bytes(source=False) == other.classes.to_bytes(source=False)
        return super().__eq__(other)

    __hash__ = Program.__hash__

    def __reduce__(self) -> tuple[Any, ...]:
        """It is pickled and copied as its image."""
        return _of_image, (self.classes.to_bytes(), self.use)


def of_image(image: bytes) -> Program:
    """Returns the program of an image, which one rank may stand for.

    Raises:
        gc3.UserError: It is no image.
    """
    read = _core.ClassProgram.from_bytes(image)
    return ClassProgram(read) if read.stands_for_all else Program(read.representative)


def _of_image(image: bytes, use: Use | None) -> ClassProgram:
    return ClassProgram(_core.ClassProgram.from_bytes(image), use)
