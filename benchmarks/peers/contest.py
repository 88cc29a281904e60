"""Measures gc3 and other libraries in turn, point by point, within one run."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType, TracebackType

from gc3 import _core, errors
from gc3.comm.world import Answer, Request, World, WorldError
from gc3.runtime.measure import cores
from peers.bound import Bound, traffic
from peers.libraries import Library, Missing, Setting, find, gc3_ranks

OURS = "gc3"
PYTHON = "gc3 python"
COLLECTIVES = ("allreduce", "allgather", "reducescatter", "alltoall", "broadcast")
_FEWEST, _MOST = 2, 2000  # iterations of one measurement
_MOST_WARMUP = 20
_MEMORY_SHARE = 0.8  # fraction of the free memory that buffers may take


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure.

    Attributes:
        collectives: Of COLLECTIVES.
        ranks: Numbers of ranks.
        sizes: Bytes of the largest buffer of a rank.
        peers: Of `libraries.PEERS`.
        rounds: Number of turns of each contender at a point.
        seconds: Approximate time for one turn.
        table: A selection table for gc3, before the default one.
    """

    collectives: tuple[str, ...]
    ranks: tuple[int, ...]
    sizes: tuple[int, ...]
    peers: tuple[str, ...]
    rounds: int = 3
    seconds: float = 0.1
    table: str | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """The times of one contender at one point.

    Attributes:
        median_us: Median over all iterations of all rounds.
        min_us: The fastest iteration.
        iterations: How many there were.
        rounds_us: The median of each round.
    """

    median_us: float
    min_us: float
    iterations: int
    rounds_us: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Point:
    """One collective, number of ranks and size.

    Attributes:
        times: By contender: "gc3", "gc3 python" and the settings of the peers, such as "openmpi ucx".
        peers: The library of each setting.
        bound_us: What the machine's memory allows.
        moved: Bytes that must be read and written for that.
    """

    collective: str
    ranks: int
    size: int
    times: Mapping[str, Sample]
    peers: Mapping[str, str]
    bound_us: float
    moved: int

    def best(self, peer: str | None = None) -> str | None:
        """Returns the fastest setting of a peer, or of all; None if none was measured."""
        found = [name for name in self.times if name in self.peers and peer in (None, self.peers[name])]
        return min(found, key=lambda name: self.times[name].median_us, default=None)

    def speedup(self, peer: str | None = None) -> float | None:
        """Returns how many times faster gc3 is than the best of a peer, or of all."""
        best = self.best(peer)
        return None if best is None else self.times[best].median_us / self.times[OURS].median_us

    @property
    def share(self) -> float:
        """The part of gc3's time that the memory bound explains."""
        return self.bound_us / self.times[OURS].median_us


@dataclass(slots=True)
class _Contender:
    name: str
    world: World
    mode: str
    seconds: list[float] = field(default_factory=list[float])
    rounds: list[float] = field(default_factory=list[float])
    each: float = 0.0  # seconds of an iteration with everything around it, in the last turn

    def ask(self, collective: str, size: int, warmup: int, iterations: int, *, check: bool = False) -> Answer:
        answer = self.world.ask(Request(collective, size, warmup, iterations, check, self.mode))
        self.each = answer.took / (warmup + iterations + check)
        if answer.wrong:
            raise WorldError(f"{answer.wrong} wrong elements in {collective} of {size} B")
        return answer

    def turn(self, collective: str, size: int, seconds: float) -> None:
        iterations = min(max(int(seconds / self.each), _FEWEST), _MOST)
        times = self.ask(collective, size, min(max(iterations // 5, 1), _MOST_WARMUP), iterations).seconds
        self.seconds += times
        self.rounds.append(statistics.median(times))

    def sample(self) -> Sample:
        us = [1e6 * s for s in self.seconds]
        return Sample(statistics.median(us), min(us), len(us), tuple(1e6 * s for s in self.rounds))


class Contest:
    """Finds the libraries, keeps their worlds, and measures.

    Attributes:
        libraries: Those that are here.
        missing: Those that are not.
        failed: Settings that could not start, or ended, with their messages; they are left out from then on.
    """

    def __init__(self, plan: Plan) -> None:
        """Compiles the needed programs into a temporary folder."""
        self.plan = plan
        self.failed: dict[str, str] = {}
        self._stack = ExitStack()
        self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="gc3-vs-")))
        try:
            found = [find(name, self._folder) for name in plan.peers]
        except BaseException:
            self._stack.close()
            raise
        self.libraries = [library for library in found if isinstance(library, Library)]
        self.missing = [missing for missing in found if isinstance(missing, Missing)]
        self._settings = [setting for library in self.libraries for setting in library.settings]

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
                contenders = self._start(ranks, stack)
                for collective in self.plan.collectives:
                    for size in self.plan.sizes:
                        begin(f"{collective}, {ranks} ranks, {size} B")
                        yield self._point(contenders, collective, ranks, size)

    def _check_memory(self, ranks: int) -> None:
        contenders = len(self._settings) + 2
        needed = contenders * ranks * 2 * max(self.plan.sizes)
        free = _core.available_memory()
        if needed > _MEMORY_SHARE * free:
            sizes = f"two buffers of {max(self.plan.sizes)} B for each of {ranks} ranks of {contenders} contenders"
            raise errors.error("OutOfMemory", f"{sizes} are {needed} B, and {free} B are free")

    def _start(self, ranks: int, stack: ExitStack) -> list[_Contender]:
        ours = self._world(Setting(OURS, OURS, gc3_ranks(self.plan.table)), ranks, stack)
        contenders = [_Contender(OURS, ours, "c++"), _Contender(PYTHON, ours, "python")]
        for setting in self._settings:
            if setting.name in self.failed or (setting.crowded and ranks <= cores()):
                continue
            try:
                contenders.append(_Contender(setting.name, self._world(setting, ranks, stack), "c++"))
            except WorldError as problem:
                self.failed[setting.name] = str(problem)
        return contenders

    def _world(self, setting: Setting, ranks: int, stack: ExitStack) -> World:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=self._folder)))
        world = World(setting.start(folder, ranks), ranks, folder)
        stack.callback(world.close)
        return world

    def _point(self, contenders: list[_Contender], collective: str, ranks: int, size: int) -> Point:
        what = traffic(collective, ranks, size)
        bound = Bound(what, min(ranks, cores()))
        bounds: list[float] = []
        for contender in contenders:
            contender.seconds, contender.rounds = [], []
        for turn in range(-1, self.plan.rounds):
            if turn >= 0:
                bounds.append(bound.seconds())
            # In both directions, so that no contender always follows the same neighbour.
            for contender in list(contenders if turn % 2 else reversed(contenders)):
                try:
                    if turn < 0:
                        contender.ask(collective, size, 1, 2, check=True)
                    else:
                        contender.turn(collective, size, self.plan.seconds)
                except WorldError as problem:
                    if contender.name in (OURS, PYTHON):
                        raise errors.error("RankLost", f"gc3 itself, {collective} of {size} B: {problem}") from problem
                    self.failed[contender.name] = f"{collective} of {size} B on {ranks} ranks: {problem}"
                    contenders.remove(contender)
        times = {contender.name: contender.sample() for contender in contenders}
        peers = {setting.name: setting.peer for setting in self._settings}
        return Point(
            collective,
            ranks,
            size,
            MappingProxyType(times),
            MappingProxyType(peers),
            1e6 * statistics.median(bounds),
            what.moved,
        )
