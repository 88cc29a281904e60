"""The fastest programs for calls on a machine that is simulated.

Whoever asks which program, without timing any, asks `choose`: `gc3 tune --topology`, `gc3 synth best`, and `gc3 sim`,
`gc3 bench` and the advice of `gc3 report` for the settings of one algorithm.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gc3 import errors
from gc3.sim.nccl import Nccl
from gc3.sim.trust import NCCL, Expected, against, distinguishable, expected
from gc3.support.at_once import at_once
from gc3.tune.goal import Goal, Measured
from gc3.tune.guided_search import ALIKE, MOST, Search
from gc3.tune.on_ranks import Tuner, places, rounds
from gc3.tune.point import Place
from gc3.tune.ranges import REFERENCE

if TYPE_CHECKING:
    from gc3.comm.spec import Spec
    from gc3.sim import Platform

_KEPT = 0.05  # programs of a point that are this much slower than the best, or less, may serve a range of sizes
_MOST_KEPT = 16
_SPARE = 10  # simulations of a point for the winners of other sizes, if there are so many


def choose(
    search: Search,
    sizes: Sequence[int],
    what: str = "",
    begin: Callable[[str], None] = lambda _: None,
    late: Callable[[], bool] = lambda: False,
) -> Iterator[tuple[int, list[tuple[Spec, float]], int]]:
    """Yields each size with the programs that were simulated there and their seconds, and with their number.

    The fastest is the first; sizes that are far apart come first, so that each size between them begins with what is
    fast beside it.

    Args:
        search: Which programs there are, on which machine and for which calls, and how many of a size are simulated.
        sizes: S in bytes, ascending.
        what: What is looked for, in words.
        begin: Called with that and the next size.
        late: Whether the time is over.
    """
    for numbers in rounds(len(sizes)):
        now = [sizes[number] for number in numbers]
        found = search.fastest_of(now)
        for size in now:
            if late():
                return
            begin(f"{what}, {size} B")
            yield size, *next(found)


def simplest(tried: Sequence[tuple[Spec, float]]) -> tuple[Spec, float]:
    """Returns the fastest program, or another one that takes as long and is simpler: with fewer instances and channels.

    Other runtimes hold fewer threadblocks and channels, so one more must bring something.
    """
    alike = [pair for pair in tried if pair[1] <= ALIKE * tried[0][1]]

    def channels(spec: Spec) -> int:
        return spec.instances * max(int(dict(spec.parameters).get("channels", 1)), 1)

    return min(alike, key=lambda pair: (channels(pair[0]), len(pair[0].parameters)))


class SimulatedTuner(Tuner):
    """The same, where programs are simulated on a machine, and not timed."""

    def __init__(self, goal: Goal, on: Platform, *, target: str | None = None, most: int = MOST) -> None:
        """Simulates nothing yet.

        Args:
            goal: What to tune.
            on: The machine.
            target: Only programs that this runtime executes as MSCCL XML: see `Search`; None: any.
            most: Simulations of a point.

        Raises:
            gc3.UserError: The machine has fewer ranks.
        """
        for ranks in goal.ranks:
            if ranks > on.topology.rank_count:
                raise errors.error(
                    "BadSimulation", f"{ranks} ranks on {on.topology.name}, which has {on.topology.rank_count}"
                )
        super().__init__(goal)
        self._on = on
        self._most = most
        self._target = target

    def points(self, begin: Callable[[str], None] = lambda _: None) -> Iterator[Measured]:
        """Yields each point when it is known; calls `begin` with the next work. Ends at the goal's time limit.

        Raises:
            gc3.UserError: No program runs there.
        """
        for group in (group for ranks in self.goal.ranks for group in places(self.goal, ranks)):
            collective, ranks, _, in_place, skew = group[0]
            own = self.goal.own_of(collective, ranks)
            further = self.goal.further(collective, ranks, in_place=in_place)
            self._refuse_one_sided(further, "gc3 tune simulates programs of messages alone")
            search = Search(
                collective,
                self._on,
                ranks,
                in_place=in_place,
                own=[each.spec for each in own],
                given=[spec for spec in further if spec.memory == "fifo"],
                target=self._target,
                most=self._most - min(len(group) - 1, _SPARE),
                skew=skew,
            )
            nccl = self._nccl(collective, ranks) if skew == 1 else None
            by_size = {place[2]: place for place in group}
            what = f"{collective}, {ranks} ranks" + (f", skew {skew:g}" if skew > 1 else "")
            for size, tried, count in choose(search, list(by_size), what, begin, lambda: self.late):
                if not tried:
                    why = f"no program for {collective} runs on {self._on.topology.name}"
                    raise errors.error("BadSimulation", why)
                near = tuple((spec, 1e6 * s) for spec, s in tried[:_MOST_KEPT] if s <= (1 + _KEPT) * tried[0][1])
                other = None if nccl is None else _reference(nccl, size)
                place = by_size[size]
                self.measured[place] = Measured(*place[:4], near, None, count, own=own, reference=other, skew=skew)
                yield self.measured[place]
            if self.late:
                return
            self._beside(search, group)

    def _beside(self, search: Search, group: list[Place]) -> None:
        """Simulates the programs that are the best at other sizes, which may serve a range of them."""
        best = {place: self.measured[place].best[0] for place in group}

        def improved(place: Place) -> Measured:
            point = self.measured[place]
            size, known = place[2], dict(point.times_us)
            by_size = sorted(group, key=lambda other: abs(math.log(max(other[2], 1) / max(size, 1))))
            before = search.simulations(size)
            for spec in dict.fromkeys(best[other] for other in by_size):
                if spec not in known and point.tried + search.simulations(size) - before < self._most:
                    known[spec] = 1e6 * search.seconds(spec, size)
            least = min(known.values())
            times = tuple((spec, took) for spec, took in known.items() if took <= 2 * least)
            return replace(point, times_us=times, tried=point.tried + search.simulations(size) - before)

        for place, point in zip(group, list(at_once(improved, group)), strict=True):
            self.measured[place] = point

    def _nccl(self, collective: str, ranks: int) -> Nccl | None:
        """The simulated NCCL; None for collectives, machines and numbers of ranks for which it is not known."""
        if ranks != self._on.topology.rank_count:
            return None
        try:
            nccl = Nccl(self._on, collective)
        except errors.UserError:
            return None
        return None if nccl.graph.notes else nccl


def worth(on: Platform, point: Measured, spec: Spec) -> Expected:
    """Returns what the simulated time of a program at a point is worth; `REFERENCE`: that of NCCL."""
    beyond = [f"{point.ranks} ranks"] if point.ranks < on.topology.rank_count else []
    beyond += ["blocks of different lengths"] if point.skew > 1 else []
    if spec == REFERENCE and point.reference is not None:
        return expected(on, point.collective, NCCL, point.size, beyond, point.reference[0].partition(" ")[2])
    return expected(on, point.collective, spec.protocol, point.size, beyond)


def compared(on: Platform, point: Measured, other: Spec, name: str, other_us: float) -> str:
    """Says how the best program of a point compares with another one, as far as both times can be told apart."""
    spec, took = point.best
    return against(took, name, other_us, worth(on, point, spec).error, worth(on, point, other).error)


def tells(on: Platform, point: Measured) -> bool:
    """Returns whether the best program of a point can be told from the reference."""
    spec, took = min((each for each in point.times_us if each[0] != REFERENCE), key=lambda each: each[1])
    errors = (worth(on, point, each).error for each in (spec, REFERENCE))
    return point.reference is not None and distinguishable(took, point.reference[1], *errors)


def _reference(nccl: Nccl, size: int) -> tuple[str, float] | None:
    """NCCL and its microseconds; None: its program does not run on the machine, or is too large to simulate."""
    try:
        return (nccl.label, 1e6 * nccl(size).time_s) if nccl.simulates(size) else None
    except errors.UserError:  # there is no path between two ranks
        return None
