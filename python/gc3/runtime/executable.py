"""What programs of messages and one-sided ones have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from gc3 import _core, datatypes, errors
from gc3.runtime.buffers import bind
from gc3.runtime.options import DEFAULT_OPTIONS, EngineOptions
from gc3.support import notebook

if TYPE_CHECKING:
    import numpy.typing as npt

    from gc3.datatypes import Array

Core = TypeVar("Core", "_core.Program", "_core.DirectProgram")


class Executable(ABC, Generic[Core]):
    """A program that runs on threads; see `gc3.Program` and `gc3.DirectProgram`."""

    core: Core

    @property
    def described(self) -> Core:
        """What is shown of it: of a program of which one rank stands for all, that rank."""
        return self.core

    @property
    def name(self) -> str:
        """Name of the algorithm it was compiled from."""
        return errors.shown(self.described.name)

    @property
    def collective(self) -> _core.Collective:
        """The collective that the program implements."""
        return self.described.collective

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return self.collective.ranks

    @property
    def in_place(self) -> bool:
        """Whether input and output of a rank share memory."""
        return self.collective.in_place

    @property
    def text(self) -> str:
        """The text form, for people."""
        return self.described.to_text()

    @abstractmethod
    def engine(self, options: EngineOptions) -> Any:
        """Returns the engine of threads with these options, made on first use."""

    def time(
        self,
        inputs: Sequence[npt.ArrayLike | None],
        *,
        op: datatypes.Op = "sum",
        outputs: Sequence[Array | None] | None = None,
        count: int | None = None,
        dtype: npt.DTypeLike | str | None = None,
        warmup: int = 5,
        iterations: int = 20,
        options: EngineOptions = DEFAULT_OPTIONS,
    ) -> list[float]:
        """Runs `warmup` + `iterations` times and returns the seconds of each timed run, until the slowest rank ends.

        Buffers are set up once: in place, each iteration works on the data that the previous one left.
        """
        bound = bind(self.collective, inputs, outputs, count, dtype)
        return bound.timed(self.engine(options).time, op, warmup, iterations)

    @abstractmethod
    def info(self) -> dict[str, Any]:
        """Returns the properties of the program as plain data."""

    def __eq__(self, other: object) -> bool:
        """Programs are equal if they do the same, wherever they were written."""
        return other is self or (isinstance(other, type(self)) and self.core == other.core)

    @abstractmethod
    def __hash__(self) -> int:
        """Consistent with equality."""

    def _repr_html_(self) -> str:
        """Shows it in a notebook."""
        rows = [(key.replace("_", " "), str(value)) for key, value in self.info().items() if value is not None]
        return notebook.card(self.name, rows[1:])
