"""Times candidates: all of them briefly, then the best ones in turn."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from gc3 import errors
from gc3.comm.selection import Spec, Table
from gc3.comm.world import WorldError
from gc3.tune.space import candidates, fits
from gc3.tune.timers import RankTimer, SimulatedTimer, Timer

if TYPE_CHECKING:
    from gc3.sim import Platform

Place: TypeAlias = tuple[str, int, int, bool]  # collective, ranks, size, in place

_FINALISTS = 4
_ROUNDS = 3
_VARIED = 2  # programs that are also tried with other thresholds
_BRIEF = 2  # iterations of the brief measurement
_FEWEST, _MOST = 2, 500  # iterations of a turn


@dataclass(frozen=True, slots=True)
class Goal:
    """What to tune.

    Attributes:
        collectives: Names.
        ranks: Numbers of ranks.
        sizes: S in bytes, ascending.
        seconds: Approximate time for one turn of a finalist.
        time_limit: Seconds for the whole search; None: no limit.
        machine: The machine to simulate; None: measure on this one, with processes.
    """

    collectives: tuple[str, ...]
    ranks: tuple[int, ...]
    sizes: tuple[int, ...]
    seconds: float = 0.02
    time_limit: float | None = None
    machine: Platform | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """The finalists at one point.

    Attributes:
        collective: Name.
        ranks: Number of ranks.
        size: S in bytes.
        in_place: The mode it was measured in.
        times_us: Median time of each finalist, in the order of candidates.
        default: The program of the default table; None if it cannot be timed.
        tried: Number of candidates that were measured briefly.
    """

    collective: str
    ranks: int
    size: int
    in_place: bool
    times_us: tuple[tuple[Spec, float], ...]
    default: Spec | None
    tried: int

    @property
    def place(self) -> Place:
        """The place of the point."""
        return self.collective, self.ranks, self.size, self.in_place

    @property
    def best(self) -> tuple[Spec, float]:
        """The fastest program; the simplest among equals."""
        return min(self.times_us, key=lambda pair: pair[1])

    @property
    def default_us(self) -> float | None:
        """The time of the default table's program."""
        return None if self.default is None else dict(self.times_us)[self.default]


@dataclass(frozen=True, slots=True)
class Found:
    """The results of a search so far, finished or not.

    Attributes:
        points: By number of ranks, collective and size, in the order of the goal.
        failed: Candidates that made their ranks fail, with the messages.
        finished: Whether every point has been measured.
    """

    points: tuple[Measured, ...]
    failed: dict[str, str]
    finished: bool


class Tuner:
    """The search among programs, for every point of a goal."""

    def __init__(self, goal: Goal, known: Iterable[Measured] = ()) -> None:
        """Starts nothing yet.

        Args:
            goal: What to tune.
            known: Earlier measurements; points for which the default table has changed do not count.
        """
        self.goal = goal
        self.measured = {point.place: point for point in known if _current(point)}
        self.failed: dict[str, str] = {}
        self._deadline = None if goal.time_limit is None else time.monotonic() + goal.time_limit

    @property
    def found(self) -> Found:
        """The known points of the goal."""
        places = [place for ranks in self.goal.ranks for group in self._groups(ranks) for place in group]
        points = tuple(self.measured[place] for place in places if place in self.measured)
        return Found(points, self.failed, len(points) == len(places))

    def points(self, begin: Callable[[str], None] = lambda _: None) -> Iterator[Measured]:
        """Yields each point when it has been measured; calls `begin` with the next work.

        Leaves out known points, and ends early at the time limit. Measurements stay in `found`, however the search
        ends.
        """
        for ranks in self.goal.ranks:
            missing = [[place for place in group if place not in self.measured] for group in self._groups(ranks)]
            if not any(missing):
                continue
            machine = self.goal.machine
            timer = RankTimer(ranks) if machine is None else SimulatedTimer(machine, ranks)
            with timer:
                for group in filter(None, missing):
                    collective, *_, in_place = group[0]
                    begin(f"{collective}, {ranks} ranks: compiling candidates")
                    tried = candidates(
                        collective,
                        ranks,
                        in_place=in_place,
                        instances=timer.instances,
                        fifos=timer.fifos,
                        threadblocks=timer.threadblocks,
                    )
                    for place in group:
                        if self._deadline is not None and time.monotonic() > self._deadline:
                            return
                        begin(f"{collective}, {ranks} ranks, {place[2]} B")
                        self.measured[place] = self._point(timer, place, tried)
                        yield self.measured[place]

    def _groups(self, ranks: int) -> Iterator[list[Place]]:
        """The places of the goal for a number of ranks, by collective, sizes ascending."""
        for collective in self.goal.collectives:
            in_place = collective == "broadcast"  # the mode in which communicators call it
            yield [(collective, ranks, size, in_place) for size in self.goal.sizes]

    def _point(self, timer: Timer, place: Place, tried: tuple[Spec, ...]) -> Measured:
        collective, ranks, size, in_place = place
        default: Spec | None = _default(place)
        fitting = [spec for spec in tried if fits(spec, size) and str(spec) not in self.failed]
        smaller = self.goal.sizes[: self.goal.sizes.index(size)][-1:]
        before = [self.measured.get((collective, ranks, last, in_place)) for last in smaller]
        winners = [point.best[0] for point in before if point is not None]
        looks: dict[Spec, float] = {}

        def look(spec: Spec) -> None:
            try:
                looks[spec] = min(timer.seconds(spec, collective, size, 1, _BRIEF, in_place=in_place))
            except WorldError as problem:
                self.failed[str(spec)] = str(problem)

        # The first one is timed twice: the first calls at a size find cold buffers and ranks, whichever program they
        # run.
        for spec in (default, *dict.fromkeys((default, *fitting))):
            look(spec)
        varied = [v for spec in sorted(looks, key=lambda s: looks[s])[:_VARIED] for v in timer.variants(spec, size)]
        for spec in dict.fromkeys((*varied, *(w for w in winners if w.thresholds and str(w) not in self.failed))):
            look(spec)
        if not looks:
            raise errors.error("RankLost", f"no program could be timed; the default one: {self.failed[str(default)]}")
        if default not in looks:
            default = None
        # Those of the last size are included: the end of a range is only known if its program was measured there.
        kept = set(sorted(looks, key=lambda spec: looks[spec])[:_FINALISTS])
        kept |= {spec for spec in winners if spec in looks}
        first = () if default is None else (default,)
        finalists = list(dict.fromkeys((*first, *(spec for spec in (*tried, *looks) if spec in kept))))
        times: dict[Spec, list[float]] = {spec: [] for spec in finalists}
        for turn in range(_ROUNDS):
            for spec in finalists if turn % 2 else reversed(finalists):
                iterations = min(max(int(self.goal.seconds / max(looks[spec], 1e-7)), _FEWEST), _MOST)
                warmup = 1 + iterations // 8
                times[spec] += timer.seconds(spec, collective, size, warmup, iterations, in_place=in_place)
        medians = tuple((spec, 1e6 * statistics.median(times[spec])) for spec in finalists)
        return Measured(*place, medians, default, len(looks))


def _default(place: Place) -> Spec:
    collective, ranks, size, in_place = place
    return Table.default().choose(collective, ranks=ranks, size=size, in_place=in_place).row.spec


def _current(point: Measured) -> bool:
    """Whether the default table still chooses the program that the candidates were compared with."""
    return point.default in (None, _default(point.place))
