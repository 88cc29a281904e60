"""Timers of programs at a size: ranks on this machine, as processes or threads."""

from __future__ import annotations

import sys
import tempfile
from abc import ABC, abstractmethod
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gc3 import _core, collectives, errors
from gc3.comm import timing
from gc3.comm.spec import Spec
from gc3.comm.timed_work import Work
from gc3.comm.world import Request, World, WorldError
from gc3.datatypes import FORMATS
from gc3.runtime.direct import DirectProgram
from gc3.runtime.measure import cores
from gc3.runtime.options import EngineOptions
from gc3.runtime.program import Program
from gc3.tune.space import variants

if TYPE_CHECKING:
    from gc3.datatypes import Array

# Engines of threads that exist at a time: one for each program of a race. Each has threads and FIFOs of its own.
_ENGINES = 16


class Timer(ABC):
    """Times programs for one number of ranks; what has no need to end anything inherits that it does nothing."""

    # Whether a program is worth timing.
    instances: tuple[int, ...] = (1, 2)
    fifos: tuple[tuple[int, int], ...] = ((0, 0), (4, 32 << 10), (4, 128 << 10), (2, 1 << 20))  # slots, bytes of one
    protocols: tuple[str, ...] = FORMATS

    def variants(self, spec: Spec, size: int) -> tuple[Spec, ...]:
        """Returns a program with other thresholds, as far as they are worth timing at S = `size` bytes."""
        return ()

    @abstractmethod
    def seconds(
        self, spec: Spec, collective: str, size: int, warmup: int, iterations: int, *, in_place: bool, skew: float = 1.0
    ) -> tuple[float, ...]:
        """Returns the times of calls with S = `size` bytes, after some untimed ones.

        Above a `skew` of 1 the calls are of the v-form, with blocks of that skew.

        Raises:
            WorldError: The program cannot be timed.
        """

    def on_registered_memory(self) -> Timer | None:
        """Returns what times programs on registered memory, also one-sided ones; None: nothing does."""
        return None

    def renew(self) -> None:  # noqa: B027  the ranks may be those of a job
        """Lets ranks start anew, where they can: they then find other memory, without that of other programs."""

    def __enter__(self) -> None:  # noqa: B027
        """Does nothing: ranks start on demand."""

    def __exit__(self, *_: object) -> None:
        """Ends the ranks."""
        self.renew()


class RankTimer(Timer):
    """A world of ranks of gc3 on this machine, restarted when a program has made it fail.

    Programs are compiled once, in this process, and the ranks read them.
    """

    def __init__(self, ranks: int) -> None:
        """Starts nothing yet."""
        self._ranks = ranks
        self._folder = tempfile.TemporaryDirectory(prefix="gc3-tune-")
        self._files: dict[tuple[Spec, bool], Path] = {}
        self._started = 0
        self._world: World | None = None

    def variants(self, spec: Spec, size: int) -> tuple[Spec, ...]:
        """Returns those for this number of ranks on this machine."""
        return variants(spec, size, core_each=self._ranks <= cores())

    def seconds(
        self, spec: Spec, collective: str, size: int, warmup: int, iterations: int, *, in_place: bool, skew: float = 1.0
    ) -> tuple[float, ...]:
        """Measures."""
        return self.timed(Request(collective, size, warmup, iterations, check=False, mode=""), spec, in_place, skew)

    def timed(self, what: Request, spec: Spec, in_place: bool, skew: float, memory: str = "") -> tuple[float, ...]:
        """The same on registered `memory`, as `Work` has it."""
        if spec.memory == "direct" != memory:
            raise WorldError("it runs on registered memory alone")
        try:
            file = self._file(spec, in_place)
        except errors.UserError as problem:  # the default table's choice need not be among the candidates
            raise WorldError(problem.message) from problem
        if self._world is None:
            self._started += 1
            place = Path(self._folder.name) / str(self._started)
            place.mkdir()
            command = [sys.executable, "-m", "gc3.comm.timed_rank", str(place), str(self._ranks)]
            self._world = World([command], self._ranks, place)
        word = Work(str(file), spec.slots, spec.slot_bytes, in_place, spec.thresholds, skew, memory).word()
        name = what.collective if what.collective in collectives.BUILTIN else "custom"  # one word
        try:
            return self._world.ask(replace(what, collective=name, mode=word)).seconds
        except WorldError:
            self._end()
            raise

    def on_registered_memory(self) -> Timer:
        """Returns what times on the same ranks."""
        return _Registered(self)

    def renew(self) -> None:
        """Ends the ranks; they start on demand."""
        self._end()

    def __exit__(self, *_: object) -> None:
        """Ends the ranks."""
        self._end()
        self._folder.cleanup()

    def _file(self, spec: Spec, in_place: bool) -> Path:
        key = spec.compiled, in_place
        if key not in self._files:
            path = Path(self._folder.name) / f"{len(self._files)}.gc3"
            program = spec.compiled.compile(self._ranks, in_place=in_place)
            program.save(path)
            if spec.memory == "direct":  # refused here, not on the ranks
                DirectProgram(_core.lower(program.core)).verify()
            self._files[key] = path
        return self._files[key]

    def _end(self) -> None:
        if self._world is not None:
            self._world.close()
            self._world = None


class _Registered(Timer):
    """The ranks of another timer, with registered memory."""

    def __init__(self, ranks: RankTimer) -> None:
        """Starts nothing."""
        self._ranks = ranks

    def seconds(
        self, spec: Spec, collective: str, size: int, warmup: int, iterations: int, *, in_place: bool, skew: float = 1.0
    ) -> tuple[float, ...]:
        """Measures."""
        what = Request(collective, size, warmup, iterations, check=False, mode="")
        return self._ranks.timed(what, spec, in_place, skew, spec.memory)

    def renew(self) -> None:
        """Ends the ranks; they start on demand."""
        self._ranks.renew()


class ThreadTimer(Timer):
    """Engines whose ranks are threads of this process, one for each program that was timed last."""

    def __init__(self, ranks: int) -> None:
        """Starts nothing yet."""
        self._ranks = ranks
        self._compiled = lru_cache(maxsize=None)(self._compile)
        self._ready = lru_cache(maxsize=_ENGINES)(self._copy)
        self._known: dict[object, Any] = {}  # buffers, the same for all programs tried at a point

    def seconds(
        self, spec: Spec, collective: str, size: int, warmup: int, iterations: int, *, in_place: bool, skew: float = 1.0
    ) -> tuple[float, ...]:
        """Measures."""
        try:
            program = self._ready(spec, in_place)
            count = collectives.count_for(program.collective, size, np.dtype(np.float32).itemsize)
            given, results = self._buffers(program.collective, count)
            options = EngineOptions(spec.slots, spec.slot_bytes)
            how: dict[str, Any] = {"count": count, "warmup": warmup, "iterations": iterations}
            return tuple(program.time(given, outputs=results, dtype=np.float32, options=options, **how))
        except errors.Gc3Error as problem:
            raise WorldError(problem.message) from problem

    def renew(self) -> None:
        """Ends the engines; they are made on demand."""
        self._ready.cache_clear()
        self._known.clear()

    def _copy(self, spec: Spec, in_place: bool) -> Program:
        """A program with an engine of its own."""
        return Program(self._compiled(spec.compiled, in_place).core)

    def _compile(self, spec: Spec, in_place: bool) -> Program:
        return spec.compile(self._ranks, in_place=in_place)

    def _buffers(
        self, model: _core.Collective, count: int
    ) -> tuple[tuple[Array | None, ...], tuple[Array | None, ...]]:
        key = model.name, model.condition, count, model.in_place
        if key not in self._known:
            ranks, in_place = range(self._ranks), model.in_place
            made = [timing.buffers(model, rank, count, np.float32, in_place=in_place) for rank in ranks]
            self._known.clear()
            self._known[key] = tuple(tuple(a if a.size else None for a in each) for each in zip(*made, strict=True))
        return self._known[key]
