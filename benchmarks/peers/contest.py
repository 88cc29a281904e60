"""Measures gc3 and other libraries in turn, point by point, within one run."""

from __future__ import annotations

import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType, TracebackType

from gc3 import _core, errors
from gc3.comm.world import Answer, Request, World, WorldError
from gc3.runtime.measure import cores
from peers.bound import Bound, caches, traffic
from peers.libraries import Library, Missing, Setting, find, own_ranks, python_ranks
from peers.points import OURS, PATTERNS, PYTHON, REUSED, ROTATED, ROWS, WAITS, Point, Sample, has_messages, percentile

MOST_WAITING = 1 << 20  # bytes; a call of more takes longer than the waits
# Each has ranks of its own.
_OWN = MappingProxyType({OURS: (own_ranks, "c++"), PYTHON: (python_ranks, "python")})
_MOST_LOST = 3  # points that gc3 may fail at before the run ends
_FOLLOWED = "openmpi"  # mpi4py calls it
_HOPELESS = 100  # times the best peer's time: such a setting is measured in no other pattern
_LOOPS = 2  # processes that load the machine
_FEWEST, _MOST = 2, 2000  # iterations of one turn
_MOST_WARMUP = 20
_ASKS = 3  # requests of one turn, at most
_LEAST_TURN_S = 0.005
_MEMORY_SHARE = 0.8  # fraction of the free memory that buffers may take
# Uses a core until the process that started it has ended.
_BUSY = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    sum(range(100000))"


def working_set() -> int:
    """Returns the bytes that rotated buffers of all ranks take: twice what the machine's caches hold."""
    return 2 * caches()


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure."""

    collectives: tuple[str, ...]  # of COLLECTIVES, or of MESSAGES
    ranks: tuple[int, ...]  # numbers of ranks
    sizes: tuple[int, ...]  # bytes of the largest buffer of a rank
    peers: tuple[str, ...]  # of `libraries.PEERS`
    rounds: int = 3  # number of turns of each contender at a point
    seconds: float = 0.1  # approximate time for one turn, at most
    minutes: float | None = None  # time in which all points should be done; turns become shorter as needed
    table: str | None = None  # a selection table for gc3, before the default one
    patterns: tuple[str, ...] = PATTERNS  # of PATTERNS; "reused" is always measured
    # Of CONDITIONS. "sessions": each rank in a session of its own and bound to no core. "loaded": the same, beside two
    # processes that never wait.
    conditions: str = "quiet"
    working_set: int = field(default_factory=working_set)  # bytes of the rotated buffers of all ranks

    def pairs(self, ranks: int, size: int) -> int:
        """Returns the number of pairs of buffers of a rank, which fill the working set."""
        return max(self.working_set // (2 * size * ranks), 1)


@dataclass(frozen=True, slots=True)
class _Call:
    collective: str
    ranks: int
    size: int
    pattern: str = REUSED
    pairs: int = 1


@dataclass(slots=True)
class _Turns:
    """The seconds of a contender's calls at a point."""

    seconds: list[float] = field(default_factory=list[float])
    rounds: list[float] = field(default_factory=list[float])
    cpu: list[float] = field(default_factory=list[float])

    def sample(self) -> Sample:
        us = [1e6 * s for s in self.seconds]
        rounds = tuple(1e6 * s for s in self.rounds)
        cpu = 1e6 * statistics.fmean(self.cpu) if self.cpu else None
        return Sample(statistics.median(us), min(us), len(us), rounds, percentile(us, 95), percentile(us, 99), cpu)


@dataclass(slots=True)
class _Contender:
    world: World
    language: str
    each: float = 0.0  # seconds of an iteration with everything around it, in the last turn

    def ask(self, call: _Call, warmup: int, iterations: int, *, check: bool = False) -> Answer:
        mode = f"{self.language} {call.pattern} {call.pairs}"
        answer = self.world.ask(Request(call.collective, call.size, warmup, iterations, check, mode))
        self.each = answer.took / (warmup + iterations + check)
        if answer.wrong:
            raise WorldError(f"{answer.wrong} wrong elements in {call.collective} of {call.size} B")
        return answer

    def turn(self, call: _Call, seconds: float, turns: _Turns) -> None:
        """Calls for about so many seconds; again where the time of a call was overestimated."""
        end = time.monotonic() + seconds
        found: list[float] = []
        for _ in range(_ASKS):
            iterations = min(max(int((end - time.monotonic()) / self.each), _FEWEST), _MOST - len(found))
            times = self.ask(call, min(max(iterations // 5, 1), _MOST_WARMUP), iterations).seconds
            if call.pattern == WAITS:
                turns.cpu.append(times[-1])
                times = times[:-1]
            found += times
            if end - time.monotonic() < seconds / 2 or len(found) > _MOST - _FEWEST:
                break
        turns.seconds += found
        turns.rounds.append(statistics.median(found))


class Pace:
    """How long turns may be, so that the whole plan ends in time: more ranks have more time."""

    def __init__(self, plan: Plan) -> None:
        """The time begins."""
        self._seconds = plan.seconds
        self._end = None if plan.minutes is None else time.monotonic() + 60 * plan.minutes
        self._left = sum(plan.ranks) * len(plan.collectives) * len(plan.sizes)

    def point(self, ranks: int, turns: int) -> float:
        """Returns the seconds of each of so many turns of the next point."""
        if self._end is None:
            return self._seconds
        ours = max(self._end - time.monotonic(), 0) * ranks / self._left
        self._left -= ranks
        return min(max(ours / turns, _LEAST_TURN_S), self._seconds)


class _LostError(Exception):
    """The ranks of gc3 have ended, do not answer, or give wrong results."""


class Contest:
    """Finds the libraries, keeps their worlds, and measures.

    Attributes:
        libraries: Those that are here.
        missing: Those that are not.
        failed: Settings that could not start, or ended, with their messages; they are left out from then on. Of
            gc3, the points that it could not do.
    """

    def __init__(self, plan: Plan) -> None:
        """Compiles the needed programs into a temporary folder, and loads the machine if that is planned."""
        self.plan = plan
        self.failed: dict[str, str] = {}
        self._apart = plan.conditions != "quiet"
        self._pace = Pace(plan)
        self._lost = 0
        self._stack = ExitStack()
        self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="gc3-vs-")))
        try:
            found = [find(name, self._folder, apart=self._apart) for name in plan.peers]
            for _ in range(_LOOPS if plan.conditions == "loaded" else 0):
                loop = subprocess.Popen([sys.executable, "-c", _BUSY], start_new_session=True)
                self._stack.callback(loop.wait)
                self._stack.callback(loop.kill)
        except BaseException:
            self._stack.close()
            raise
        self.libraries = [library for library in found if isinstance(library, Library)]
        self.missing = [missing for missing in found if isinstance(missing, Missing)]
        settings = {setting.name: setting for library in self.libraries for setting in library.settings}
        self._peers = MappingProxyType({name: setting.peer for name, setting in settings.items()})
        self._followers = {s.follows: s for s in settings.values() if s.follows in settings}
        self._settings = [s for s in settings.values() if s.follows not in settings]

    def __enter__(self) -> Contest:
        """Returns itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        """Removes the folder."""
        self._stack.close()

    def points(self, begin: Callable[[str], None] = lambda _: None) -> Iterator[Point]:
        """Yields each point when it has been measured; calls `begin` with the next work."""
        for ranks in self.plan.ranks:
            self._check_memory(ranks)
            with ExitStack() as stack:
                contenders = self._ours(ranks, stack)
                for setting in self._settings:
                    if not (setting.crowded and ranks <= cores()):
                        self._add(contenders, setting, ranks, stack)
                for collective in self.plan.collectives:
                    for size in self.plan.sizes:
                        begin(f"{collective}, {ranks} ranks, {size} B")
                        try:
                            point = self._point(contenders, _Call(collective, ranks, size), stack)
                        except _LostError as problem:  # the other points are measured with new ranks
                            self.failed[f"gc3 itself, {collective} of {size} B on {ranks} ranks"] = str(problem)
                            self._lost += 1
                            if self._lost > _MOST_LOST:
                                raise errors.error("RankLost", f"gc3 itself, again and again: {problem}") from problem
                            contenders |= self._ours(ranks, stack)
                            continue
                        yield point

    def _ours(self, ranks: int, stack: ExitStack) -> dict[str, _Contender]:
        return {
            name: _Contender(
                self._world(Setting(name, OURS, start(self.plan.table, apart=self._apart)), ranks, stack), language
            )
            for name, (start, language) in _OWN.items()
            if name == OURS or not has_messages(self.plan.collectives)
        }

    def _check_memory(self, ranks: int) -> None:
        contenders = len(self._settings) + len(_OWN) + bool(self._followers)
        needed = contenders * ranks * 2 * max(self.plan.sizes)
        free = _core.available_memory()
        if needed > _MEMORY_SHARE * free:
            sizes = f"two buffers of {max(self.plan.sizes)} B for each of {ranks} ranks of {contenders} contenders"
            raise errors.error("OutOfMemory", f"{sizes} are {needed} B, and {free} B are free")

    def _add(self, contenders: dict[str, _Contender], setting: Setting, ranks: int, stack: ExitStack) -> None:
        """Starts the ranks of a setting, unless they run or have failed."""
        if setting.name in self.failed or setting.name in contenders:
            return
        try:
            contenders[setting.name] = _Contender(self._world(setting, ranks, stack), "c++")
        except WorldError as problem:
            self.failed[setting.name] = str(problem)

    def _world(self, setting: Setting, ranks: int, stack: ExitStack) -> World:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=self._folder)))
        world = World(setting.start(folder, ranks), ranks, folder)
        stack.callback(world.close)
        return world

    def _point(self, contenders: dict[str, _Contender], call: _Call, stack: ExitStack) -> Point:
        what = traffic(call.collective, call.ranks, call.size)
        bound = Bound(what, min(call.ranks, cores()))
        bounds: list[float] = []
        following = {setting.name for setting in self._followers.values()}
        names = [name for name in contenders if name not in following]
        rotated = replace(call, pattern=ROTATED, pairs=self.plan.pairs(call.ranks, call.size))
        rotates = ROTATED in self.plan.patterns and rotated.pairs > 1
        waits = WAITS in self.plan.patterns and call.size <= MOST_WAITING
        rows = ROWS in self.plan.patterns and call.size <= MOST_WAITING
        turns = self.plan.rounds * (len(names) + 2) * (1 + rotates + rows) + waits * (len(self.libraries) + 1)
        seconds = self._pace.point(call.ranks, turns)

        times = self._measure(contenders, names, call, seconds, between=lambda: bounds.append(bound.seconds()))
        bound_us = 1e6 * statistics.median(bounds)
        point = Point(call.collective, call.ranks, call.size, times, self._peers, bound_us, what.moved)
        setting = self._followers.get(point.best(_FOLLOWED) or "")
        if setting is not None:
            self._add(contenders, setting, call.ranks, stack)
            names.append(setting.name)
            # Beside gc3 from Python alone, which it is compared with.
            point = replace(point, times={**times, **self._measure(contenders, [PYTHON, setting.name], call, seconds)})
        best = point.best()
        most = _HOPELESS * times[best].median_us if best else math.inf
        names = [name for name, sample in point.times.items() if name in (OURS, PYTHON) or sample.median_us < most]
        if rotates:
            point = replace(point, rotated=self._measure(contenders, names, rotated, seconds))
        if rows:
            point = replace(point, rows=self._measure(contenders, names, replace(call, pattern=ROWS), seconds))
        if waits:
            some = [PYTHON, *(best for library in self.libraries if (best := point.best(library.name)) is not None)]
            paused = self._measure(contenders, some, replace(call, pattern=WAITS), seconds, rounds=1)
            point = replace(point, waits=paused)
        if setting is not None:  # its buffers may be large, and the next point may need another one
            self._measure(contenders, [setting.name], replace(call, size=4 * call.ranks), 0, rounds=1)
        return point

    def _measure(
        self,
        contenders: dict[str, _Contender],
        names: Sequence[str],
        call: _Call,
        seconds: float,
        *,
        rounds: int | None = None,
        between: Callable[[], None] = lambda: None,
    ) -> dict[str, Sample]:
        """Returns the times of the contenders of these names that do not fail; the others are gone afterwards."""
        names = [name for name in names if name in contenders]
        found = {name: _Turns() for name in names}
        for turn in range(-1, self.plan.rounds if rounds is None else rounds):
            if turn >= 0:
                between()
            # In both directions, so that no contender always follows the same neighbour.
            for name in names if turn % 2 else reversed(names):
                if name not in contenders:
                    continue
                try:
                    if turn < 0:
                        contenders[name].ask(call, 1, 2, check=True)
                    else:
                        contenders[name].turn(call, seconds, found[name])
                except WorldError as problem:
                    what = f"{call.collective} of {call.size} B"
                    if name in (OURS, PYTHON):
                        raise _LostError(str(problem)) from problem
                    self.failed[name] = f"{what} on {call.ranks} ranks: {problem}"
                    del contenders[name]
        return {name: turns.sample() for name, turns in found.items() if name in contenders}
