"""Times programs at one place: all of them briefly, the faster half again and again, then the finalists in a race."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Collection, Iterable
from typing import TypeAlias

from gc3.comm.selection import Spec
from gc3.comm.world import WorldError
from gc3.tune.race import FEWEST_ROUNDS, Outcome, race
from gc3.tune.timers import Timer

Place: TypeAlias = tuple[str, int, int, bool, float]  # collective, ranks, size, in place, skew

FINALISTS = 8
_LOOKING = 0.5  # of the share of time: after it no further programs are tried
_BRIEF = 2  # iterations of a look
_FEWEST, _MOST = 2, 2000  # iterations of a turn
_TURN = 0.02  # of the share: one turn is no longer


class Point:
    """Programs at one place, and a share of time.

    Attributes:
        looks: Seconds of the fastest call of each program in its looks.
        cut: Whether the time did not suffice for all programs, or for as many rounds as an interval needs.
    """

    def __init__(self, timer: Timer, place: Place, seconds: float, share: float, failed: dict[str, str]) -> None:
        """Times nothing yet.

        Args:
            timer: Times programs.
            place: The place.
            seconds: Approximate time of a turn.
            share: Seconds for all.
            failed: Takes the programs that cannot be timed, with the reasons.
        """
        self.looks: dict[Spec, float] = {}
        self.cut = False
        self._timer = timer
        self._place = place
        self._seconds_of_turn = min(seconds, share * _TURN)
        self._share = share
        self._failed = failed
        self._began = 0.0

    def start(self, programs: Iterable[Spec]) -> None:
        """Looks at programs twice; the time for the others begins between these looks.

        The first calls at a size find cold buffers and ranks, whichever program they run. Starting ranks takes as long
        as timing many programs, so it does not count as a part of the share.
        """
        first = list(programs)
        for spec in first:
            self.look(spec)
        self.looks.clear()
        self._began = time.monotonic()
        for spec in first:
            self.look(spec)

    def look_at(self, programs: Iterable[Spec]) -> None:
        """Looks at programs in their order, as long as there is time."""
        for spec in programs:
            if self._used() > _LOOKING and len(self.looks) > FINALISTS:
                self.cut = True
                return
            if spec not in self.looks:
                self.look(spec)

    def halve(self) -> list[Spec]:
        """Looks at the faster half again, until the finalists are left; returns them, the fastest first.

        This is successive halving (K. Jamieson, A. Talwalkar, Non-stochastic Best Arm Identification and Hyperparameter
        Optimization, 2016, section 3) with the minimum of all looks: a single look may be that of an interrupted rank.
        """
        left = self._fastest(self.looks)
        while len(left) > FINALISTS and self._used() <= _LOOKING:
            left = left[: max(FINALISTS, len(left) // 2)]
            for spec in left:
                self.look(spec)
            left = self._fastest(left)
        return [spec for spec in left if spec in self.looks][:FINALISTS]

    def look(self, spec: Spec) -> None:
        """Looks at a program, whatever time there is."""
        took = self._seconds(spec, 1, _BRIEF)
        if took is None:
            self.looks.pop(spec, None)
        else:
            self.looks[spec] = min(*took, self.looks.get(spec, math.inf))

    def race(self, finalists: Iterable[Spec], kept: Collection[Spec]) -> Outcome[Spec] | None:
        """Times finalists in turn; None: none can be timed."""
        found = race(finalists, self.turn, kept=kept, goes_on=lambda: self._used() <= 1, renew=self._timer.renew)
        self.cut |= found is not None and len(found.turns[found.winner]) < FEWEST_ROUNDS
        return found

    def turn(self, spec: Spec) -> float | None:
        """Returns the median of the calls of a turn of a program that was looked at; None: it cannot be timed."""
        iterations = min(max(int(self._seconds_of_turn / max(self.looks[spec], 1e-7)), _FEWEST), _MOST)
        took = self._seconds(spec, 1 + iterations // 8, iterations)
        return None if took is None else statistics.median(took)

    def _fastest(self, programs: Collection[Spec]) -> list[Spec]:
        return sorted(programs, key=lambda spec: self.looks.get(spec, math.inf))

    def _used(self) -> float:
        return (time.monotonic() - self._began) / self._share

    def _seconds(self, spec: Spec, warmup: int, iterations: int) -> tuple[float, ...] | None:
        collective, _, size, in_place, skew = self._place
        try:
            return self._timer.seconds(spec, collective, size, warmup, iterations, in_place=in_place, skew=skew)
        except WorldError as problem:
            self._failed[str(spec)] = str(problem)
            return None
