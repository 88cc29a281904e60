"""Races of programs whose times vary: in each round every program has a turn, until none of the rest can be faster.

The time of a turn is the median of its calls, and the time of a program that of its turns. The median is what a caller
meets; the fastest call is that of ranks that happened to meet, which programs differ in. Calls that follow each other
are alike, since a slow phase of the machine lasts for many of them, so only turns count as independent. A slow phase
lasts for several turns, too. So programs are compared by the ratio of their times in the same round, and the order of a
round is drawn anew.

Intervals are those of the median by order statistics, which assume nothing of how times are distributed (H. A. David,
H. N. Nagaraja, Order Statistics, 3rd edition, section 7.1). Six turns are the fewest with one of 95 %.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

LEVEL = 0.95
MARGIN = 0.02  # programs that differ by less are equal
FEWEST_ROUNDS, MOST_ROUNDS = 6, 20  # the fewest that have an interval
_FAR = 1.25  # a program that was slower by this in each of the first rounds is out before it has an interval
_FIRST = 2
_TOGETHER = 10  # rounds of the same ranks, since starting them takes as long as many turns

K = TypeVar("K", bound=Hashable)


def interval(values: Sequence[float], level: float = LEVEL) -> tuple[float, float] | None:
    """Returns an interval that holds the median of what some values were drawn from; None if they are too few.

    Args:
        values: Independent of each other.
        level: The probability that it does, at least.

    >>> interval([3, 1, 2, 5, 4, 6])
    (1, 6)
    >>> interval([3, 1, 2, 5, 4]) is None
    True
    """
    count = len(values)
    outside, rank = 0.0, 0  # the probability that the median is beyond the values of that rank from both ends
    while rank < count // 2 and outside + 2 * math.comb(count, rank) / 2**count <= 1 - level:
        outside += 2 * math.comb(count, rank) / 2**count
        rank += 1
    if rank == 0:
        return None
    ordered = sorted(values)
    return ordered[rank - 1], ordered[count - rank]


@dataclass(frozen=True, slots=True)
class Outcome(Generic[K]):
    """What a race has shown.

    Attributes:
        turns: Seconds of the turns of each program; those that are out early have fewer. The winner comes first in all
            other mappings.
        winner: The fastest program.
        within: Any other is faster by at most this, at LEVEL each: 0.01 is 1 %. None: there were too few rounds.
    """

    turns: dict[K, list[float]]
    winner: K
    within: float | None

    @property
    def seconds(self) -> dict[K, float]:
        """The times: the median of the winner's turns, and the others' in comparison with it in the same rounds.

        None is less than the winner's: a program that is out had few turns, and its comparisons with others than the
        winner count as well.
        """
        least = statistics.median(self.turns[self.winner])
        return {program: max(least, statistics.median(times)) for program, times in self._comparable()}

    @property
    def intervals(self) -> dict[K, tuple[float, float] | None]:
        """The intervals of the times; None: of too few turns."""
        seconds, found = self.seconds, dict[K, tuple[float, float] | None]()
        for program, times in self._comparable():
            ends = interval(times)
            found[program] = ends and (ends[0], max(ends[1], seconds[program]))
        return found

    def _comparable(self) -> Iterator[tuple[K, list[float]]]:
        own = self.turns[self.winner]
        middle = statistics.median(own)
        yield self.winner, own
        for program, times in self.turns.items():
            if program != self.winner:
                yield program, [middle * ratio for ratio in _ratios(times, own)]


def race(
    programs: Iterable[K],
    turn: Callable[[K], float | None],
    *,
    kept: Collection[K] = (),
    goes_on: Callable[[], bool] = lambda: True,
    renew: Callable[[], None] = lambda: None,
) -> Outcome[K] | None:
    """Times programs in turn until one is left, the rest is faster by MARGIN at most, or after MOST_ROUNDS.

    Args:
        programs: They, in the order in which equal ones are preferred.
        turn: Times one, in seconds; None: it cannot be timed, and is left out. If others are out by then, the rest race
            anew, since they may be out only because of it.
        kept: Those that have a turn in every round, though others are faster.
        goes_on: Whether there is time for another round; the first is always run.
        renew: Lets ranks start anew, before some of the rounds. Where a rank's memory is can matter more than the
            program, and other programs that have run there matter as well.

    Returns:
        None: none of them can be timed.
    """
    turns: dict[K, list[float]] = {program: [] for program in programs}
    left = list(turns)
    within: float | None = None
    draw = random.Random(len(left))  # noqa: S311  the order is the same for the same programs
    for number in range(MOST_ROUNDS):
        if number and not goes_on():
            break
        if number % _TOGETHER == 0:
            renew()
        now = [program for program in turns if program in left or program in kept]
        all_left = len(left) == len(turns)
        for program in draw.sample(now, len(now)):
            took = turn(program)
            if took is None:
                del turns[program]
            else:
                turns[program].append(took)
        lost = [program for program in left if program not in turns]
        left = [program for program in left if program in turns]
        if lost and not all_left:
            return race(turns, turn, kept=kept, goes_on=goes_on, renew=renew)
        if not left:
            return None
        best = _fastest(left, turns)
        # Those that are kept can come back, since they have turns anyway.
        timed = [program for program in now if program in turns]
        left = [program for program in timed if program == best or _may_win(turns[program], turns[best])]
        if number + 1 < FEWEST_ROUNDS:
            continue
        best = _fastest(left, turns)
        within = max(0.0, *(1 / (_least(turns[program], turns[best]) or 1.0) - 1 for program in left))
        if within <= MARGIN:
            break
    return Outcome(turns, _fastest(left, turns), within)


def _fastest(left: Sequence[K], turns: dict[K, list[float]]) -> K:
    """That which the fewest others are faster than, in comparison with the turns of the same rounds."""

    def slower_than(program: K) -> int:
        return sum(statistics.median(_ratios(turns[other], turns[program])) < 1 for other in left)

    return min(left, key=lambda program: (slower_than(program), statistics.median(turns[program])))


def _ratios(times: Sequence[float], others: Sequence[float]) -> list[float]:
    return [time / other for time, other in zip(times, others, strict=False)]


def _least(times: Sequence[float], best: Sequence[float]) -> float | None:
    """The lower end of the interval of how many times longer a program takes than the best; None: too few turns."""
    found = interval(_ratios(times, best))
    return None if found is None else found[0]


def _may_win(times: Sequence[float], best: Sequence[float]) -> bool:
    least = _least(times, best)
    if least is not None:
        return least <= 1
    return len(times) < _FIRST or min(_ratios(times, best)) <= _FAR
