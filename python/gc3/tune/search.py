"""Measures candidates: all of them briefly, then the best of them in turn."""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from gc3 import errors
from gc3.comm.selection import Spec, Table
from gc3.peers.world import PeerError, Request, World
from gc3.tune.space import candidates, fits
from gc3.tune.wire import encode

_FINALISTS = 4
_ROUNDS = 3
_BRIEF = 2  # iterations of the first look
_FEWEST, _MOST = 2, 500  # of a round


@dataclass(frozen=True, slots=True)
class Goal:
    """What is tuned.

    Attributes:
        collectives: Names.
        ranks: Numbers of ranks.
        sizes: S in bytes, ascending.
        seconds: Time for one turn of a finalist, roughly.
        time_limit: Seconds for all of it; None: no limit.
    """

    collectives: tuple[str, ...]
    ranks: tuple[int, ...]
    sizes: tuple[int, ...]
    seconds: float = 0.02
    time_limit: float | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """The finalists at one point.

    Attributes:
        collective: Name.
        ranks: Number of ranks.
        size: S in bytes.
        in_place: The mode it was measured in.
        times_us: Median time of each finalist, in the order of candidates.
        default: The program of the default table.
        tried: How many candidates had a first look.
    """

    collective: str
    ranks: int
    size: int
    in_place: bool
    times_us: tuple[tuple[Spec, float], ...]
    default: Spec
    tried: int

    @property
    def best(self) -> tuple[Spec, float]:
        """The fastest, the simplest of equals."""
        return min(self.times_us, key=lambda pair: pair[1])

    @property
    def default_us(self) -> float:
        """The time of the default table's program."""
        return dict(self.times_us)[self.default]


@dataclass(slots=True)
class Found:
    """What a search has found so far, whether or not it came to its end.

    Attributes:
        points: In the order in which they were measured.
        failed: Candidates that ended their ranks, and what those said.
        finished: Whether every point has been measured.
    """

    points: list[Measured]
    failed: dict[str, str]
    finished: bool = False


class Tuner:
    """Rank processes that time whatever program they are asked for, and the search that asks them."""

    def __init__(self, goal: Goal) -> None:
        """Starts nothing yet."""
        self.goal = goal
        self.found = Found([], {})
        self._deadline = None if goal.time_limit is None else time.monotonic() + goal.time_limit

    def points(self, begin: Callable[[str], None] = lambda _: None) -> Iterator[Measured]:
        """Yields each point when it has been measured; `begin` is told before what is next.

        Ends early when the time limit has passed. What has been measured stays in `found`, however the search ends.
        """
        for ranks in self.goal.ranks:
            with ExitStack() as stack:
                ask = _Asker(ranks, Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gc3-tune-"))))
                stack.callback(ask.close)
                for collective in self.goal.collectives:
                    begin(f"{collective}, {ranks} ranks: compiling candidates")
                    in_place = collective == "broadcast"  # as communicators call it
                    tried = candidates(collective, ranks, in_place=in_place)
                    for size in self.goal.sizes:
                        if self._deadline is not None and time.monotonic() > self._deadline:
                            return
                        begin(f"{collective}, {ranks} ranks, {size} B")
                        point = self._point(ask, collective, ranks, size, tried, in_place=in_place)
                        self.found.points.append(point)
                        yield point
        self.found.finished = True

    def _point(
        self, ask: _Asker, collective: str, ranks: int, size: int, tried: tuple[Spec, ...], *, in_place: bool
    ) -> Measured:
        default = Table.default().choose(collective, ranks=ranks, size=size, in_place=in_place).row.spec
        fitting = [spec for spec in tried if fits(spec, size) and str(spec) not in self.found.failed]
        looks: dict[Spec, float] = {}
        for spec in [default, *(spec for spec in fitting if spec != default)]:
            try:
                looks[spec] = statistics.median(ask.seconds(spec, collective, size, 1, _BRIEF, in_place=in_place))
            except PeerError as problem:
                if spec == default:
                    raise errors.error("RankLost", f"the ranks that are timed: {problem}") from problem
                self.found.failed[str(spec)] = str(problem)
        # Those of the last size too: whether a range goes on can be seen only where its program was measured.
        before = [p for p in self.found.points[-1:] if (p.collective, p.ranks) == (collective, ranks)]
        kept = {default, *sorted(looks, key=lambda spec: looks[spec])[:_FINALISTS]}
        kept |= {p.best[0] for p in before if p.best[0] in looks}
        finalists = [spec for spec in (default, *tried) if spec in kept]
        finalists = list(dict.fromkeys(finalists))
        times: dict[Spec, list[float]] = {spec: [] for spec in finalists}
        for turn in range(_ROUNDS):
            for spec in finalists if turn % 2 else reversed(finalists):
                iterations = min(max(int(self.goal.seconds / max(looks[spec], 1e-7)), _FEWEST), _MOST)
                times[spec] += ask.seconds(spec, collective, size, 1, iterations, in_place=in_place)
        medians = tuple((spec, 1e6 * statistics.median(times[spec])) for spec in finalists)
        return Measured(collective, ranks, size, in_place, medians, default, len(looks))


class _Asker:
    """A world of ranks of gc3, started again when a program has ended it."""

    def __init__(self, ranks: int, folder: Path) -> None:
        self._ranks = ranks
        self._folder = folder
        self._started = 0
        self._world: World | None = None

    def seconds(
        self, spec: Spec, collective: str, size: int, warmup: int, iterations: int, *, in_place: bool
    ) -> tuple[float, ...]:
        if self._world is None:
            self._started += 1
            place = self._folder / str(self._started)
            place.mkdir()
            command = [sys.executable, "-m", "gc3.tune.rank", str(place)]
            self._world = World([[*command, str(r), str(self._ranks)] for r in range(self._ranks)], self._ranks, place)
        word = encode(spec, in_place=in_place)
        try:
            return self._world.ask(Request(collective, size, warmup, iterations, check=False, mode=word)).seconds
        except PeerError:
            self.close()
            raise

    def close(self) -> None:
        if self._world is not None:
            self._world.close()
            self._world = None
