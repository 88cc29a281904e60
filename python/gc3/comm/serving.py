"""Which program serves a call of a communicator: one that was loaded, or one of the table, made ready once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from gc3 import _core, collectives, datatypes

if TYPE_CHECKING:
    import numpy as np

    from gc3.comm.selection import Spec, Table
    from gc3.program import Program

Ready = TypeVar("Ready")
Made_co = TypeVar("Made_co", covariant=True)

_MOST_REMEMBERED = 4096  # kinds of calls whose program is known without looking at the table


@dataclass(frozen=True, slots=True)
class Explanation:
    """Which program serves a call, and why.

    Attributes:
        call: The call, in words.
        program: The program.
        source: The row of the table, or the loaded program.
        note: What the row says about itself.
        passed_over: Each loaded program and earlier row, and why it does not serve the call.
        devices: How calls on device arrays reach the devices of other ranks, and why so; "" before the first one.
    """

    call: str
    program: str
    source: str
    note: str
    passed_over: tuple[tuple[str, str], ...]
    devices: str = ""

    def __str__(self) -> str:
        """Says it in a few lines."""
        lines = [f"{self.call}: {self.program}", f"  chosen by {self.source}" + (f": {self.note}" if self.note else "")]
        lines += [f"  not {source}: {why}" for source, why in self.passed_over]
        return "\n".join(lines + ([f"  between devices: {self.devices}"] if self.devices else []))


class Maker(Protocol[Made_co]):
    """What makes programs ready to run: the core's communicator, or the devices' side of it."""

    @property
    def size(self) -> int:
        """Number of ranks."""
        ...

    def prepare(self, program: _core.Program, slots: int = 0, slot_bytes: int = 0) -> Made_co:
        """Makes a program ready."""
        ...


@dataclass(frozen=True, slots=True)
class Loaded(Generic[Ready]):
    """A program the user has loaded, and the sizes of calls, in bytes, that it shall serve."""

    program: Program
    ready: Callable[[], Ready]
    sizes: tuple[int, int | None]

    def misfit(self, size: int, in_place: bool, root: int) -> str | None:
        """Returns why it does not serve a call of its collective; None: it does."""
        model = self.program.collective
        if size < self.sizes[0] or (self.sizes[1] is not None and size >= self.sizes[1]):
            return f"loaded for sizes from {self.sizes[0]} to below {self.sizes[1]} bytes"
        if model.in_place != in_place:
            return "it works in place, the call does not" if model.in_place else "it does not work in place"
        if collectives.rooted(model) and model.root != root:
            return f"its root is rank {model.root}"
        return None


class Serving(Generic[Ready]):
    """The programs of a communicator."""

    def __init__(self, core: Maker[Ready], table: Table) -> None:
        """Starts with the programs that the table names; none is compiled yet."""
        self._core = core
        self._table = table
        self._loaded: list[Loaded[Ready]] = []
        self._ready: dict[tuple[Spec, int, bool], Ready] = {}
        self._remembered: dict[tuple[str, int, Any, bool, int], Ready] = {}

    def add(self, program: Program, ready: Callable[[], Ready], sizes: tuple[int, int | None]) -> None:
        """Lets a program serve the calls of its collective with S from `sizes[0]` to below `sizes[1]` bytes."""
        self._loaded.append(Loaded(program, ready, sizes))
        self._remembered.clear()

    def program(self, name: str, count: int, dtype: np.dtype[Any], *, in_place: bool, root: int) -> Ready:
        """Returns the program for a call of `count` elements per block."""
        key = (name, count, dtype, in_place, root)
        found = self._remembered.get(key)
        if found is None:
            found = self._choose(name, count, dtype.itemsize, in_place, root)
            if len(self._remembered) >= _MOST_REMEMBERED:
                self._remembered.clear()
            self._remembered[key] = found
        return found

    def described(self, spec: Spec, *, in_place: bool, root: int) -> Ready:
        """Returns the program of a row, compiled on its first use."""
        key = (spec, root, in_place)
        ready = self._ready.get(key)
        if ready is None:
            program = spec.compile(self._core.size, root=root, in_place=in_place)
            ready = self._core.prepare(program.core, spec.slots, spec.slot_bytes)
            self._ready[key] = ready
        return ready

    def explain(self, name: str, count: int, dtype: np.dtype[Any], *, in_place: bool, root: int) -> Explanation:
        """Says which program that is, and why."""
        ranks = self._core.size
        model = collectives.get(name).model(ranks, root=root)
        size = collectives.size_for(model, count, dtype.itemsize)
        mode = "in place" if in_place else "out of place"
        call = f"{name} of {count} {datatypes.name(dtype)} ({size} B), {ranks} ranks, {mode}"
        passed: list[tuple[str, str]] = []
        for loaded in reversed(self._loaded):
            if loaded.program.collective.name != name:
                continue
            source = f"the loaded program {loaded.program.name}"
            why = loaded.misfit(size, in_place, root)
            if why is None:
                about = f"{loaded.program.name}, {loaded.program.protocol}"
                return Explanation(call, about, source, "", tuple(passed))
            passed.append((source, why))
        choice = self._table.choose(name, ranks=ranks, size=size, in_place=in_place)
        row = choice.row
        return Explanation(call, str(row.spec), row.source, row.note, (*passed, *choice.passed_over))

    def _choose(self, name: str, count: int, itemsize: int, in_place: bool, root: int) -> Ready:
        ranks = self._core.size
        size = collectives.size_for(collectives.get(name).model(ranks, root=root), count, itemsize)
        for loaded in reversed(self._loaded):
            fits = loaded.program.collective.name == name
            if fits and loaded.misfit(size, in_place, root) is None:
                return loaded.ready()
        row = self._table.choose(name, ranks=ranks, size=size, in_place=in_place).row
        return self.described(row.spec, in_place=in_place, root=root)
