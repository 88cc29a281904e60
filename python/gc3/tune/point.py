"""Times programs at one place: all of them briefly, the faster half again and again, then the finalists in a race."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Collection, Iterable
from typing import TypeAlias

from gc3.comm.spec import Spec
from gc3.comm.world import WorldError
from gc3.tune.race import MOST_ROUNDS, Outcome, race
from gc3.tune.timers import Timer

Place: TypeAlias = tuple[str, int, int, bool, float]  # collective, ranks, size, in place, skew

FINALISTS = 8
FAR = 2.0  # a program whose call takes so many times as long as the fastest one's is not looked at again
SURE = 0.05  # what others may be faster by at most, or the race would have gone on if there had been time
_BRIEF = 2  # iterations of a look
_LONG = 2e-3  # seconds: where a call takes longer, one is enough to see that a program is far from the best
_FEWEST, _MOST = 2, 2000  # iterations of a turn
_TURN = 0.02  # of the time of a race: one turn is no longer


class Point:
    """Programs at one place.

    Attributes:
        looks: Seconds of the fastest call of each program in its looks.
        finalists: The fastest of them after `halve`, the fastest first.
        cut: Whether the time did not suffice for looks at all programs.
        brief: Whether that is so, or it did not suffice for the rounds that the last race needed.
    """

    def __init__(self, timer: Timer, place: Place, seconds: float, failed: dict[str, str]) -> None:
        """Times nothing yet.

        Args:
            timer: Times programs.
            place: The place.
            seconds: Approximate time of a turn.
            failed: Takes the programs that cannot be timed, with the reasons.
        """
        self.looks: dict[Spec, float] = {}
        self.finalists: list[Spec] = []
        self.cut = False
        self.brief = False
        self._timer = timer
        self._place = place
        self._seconds_of_turn = self._most_of_turn = seconds
        self._failed = failed
        # Seconds of a call when it was timed last, with those in which a rank was stopped.
        self._means: dict[Spec, float] = {}

    def start(self, programs: Iterable[Spec]) -> None:
        """Looks at programs twice: the first calls at a size find cold buffers, whichever program they run."""
        first = list(programs)
        for spec in first:
            self.look(spec)
        self.looks.clear()
        for spec in first:
            self.look(spec)

    def look_at(self, programs: Iterable[Spec], goes_on: Callable[[], bool] = lambda: True) -> None:
        """Looks at programs in their order as long as there is time, and at FINALISTS at least."""
        self.cut = self.brief = False
        for spec in programs:
            if spec not in self.looks:
                if len(self.looks) > FINALISTS and not goes_on():
                    self.cut = self.brief = True
                    return
                self.look(spec)

    def halve(self, goes_on: Callable[[], bool] = lambda: True) -> None:
        """Looks at the faster half again, as long as there is time, until the finalists are left.

        This is successive halving (K. Jamieson, A. Talwalkar, Non-stochastic Best Arm Identification and Hyperparameter
        Optimization, 2016, section 3) with the minimum of all looks: a single look may be that of an interrupted rank.
        """
        left = self._fastest(self.looks)
        while len(left) > FINALISTS and goes_on():
            near = sum(self.looks[spec] <= FAR * self.looks[left[0]] for spec in left)
            left = left[: max(FINALISTS, min(near, len(left) // 2))]
            for spec in left:
                self.look(spec)
            left = self._fastest(spec for spec in left if spec in self.looks)
        self.finalists = left[:FINALISTS]

    def look(self, spec: Spec) -> None:
        """Looks at a program, whatever time there is."""
        best = min(self.looks.values(), default=0.0)
        first = self._seconds(spec, 0, 1) if best > _LONG else ()
        if first is None:
            self.looks.pop(spec, None)
            return
        took = first if first and first[0] > FAR * best else self._seconds(spec, 0 if first else 1, _BRIEF)
        if took is None:
            self.looks.pop(spec, None)
        else:
            self.looks[spec] = min(*first, *took, self.looks.get(spec, math.inf))

    def race(
        self, finalists: Iterable[Spec], kept: Collection[Spec], seconds: float = math.inf
    ) -> Outcome[Spec] | None:
        """Times finalists in turn for so many seconds, the start of ranks aside; None: none can be timed."""
        self._seconds_of_turn = min(self._most_of_turn, seconds * _TURN)
        end = time.monotonic() + seconds
        found = race(finalists, self.turn, kept=kept, goes_on=lambda: time.monotonic() < end, renew=self._timer.renew)
        if found is not None:
            ended = len(found.turns[found.winner]) == MOST_ROUNDS
            self.brief = self.cut or found.within is None or (not ended and found.within > SURE)
        return found

    def turn(self, spec: Spec) -> float | None:
        """Returns the median of the calls of a turn of a program that was looked at; None: it cannot be timed."""
        iterations = min(max(int(self._seconds_of_turn / max(self._means[spec], 1e-7)), _FEWEST), _MOST)
        took = self._seconds(spec, 1 + iterations // 8, iterations)
        return None if took is None else statistics.median(took)

    def _fastest(self, programs: Iterable[Spec]) -> list[Spec]:
        return sorted(programs, key=self.looks.__getitem__)

    def _seconds(self, spec: Spec, warmup: int, iterations: int) -> tuple[float, ...] | None:
        collective, _, size, in_place, skew = self._place
        try:
            took = self._timer.seconds(spec, collective, size, warmup, iterations, in_place=in_place, skew=skew)
        except WorldError as problem:
            self._failed[str(spec)] = str(problem)
            return None
        self._means[spec] = statistics.fmean(took)
        return took
