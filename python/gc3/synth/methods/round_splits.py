"""Searches over the rounds of each step, for demands that copy chunks: each split of the rounds is its own formula.

The splits are bounded by linear programs, guessed, suggested by branch and bound, or all tried.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import replace

from gc3.synth.bounds import flow_relaxation
from gc3.synth.methods import greedy
from gc3.synth.methods.satisfiability import satisfied
from gc3.synth.problem import FIRST_SLICE, slices
from gc3.synth.problem.schedule import repeated
from gc3.synth.problem.symmetry import trivial, turnings
from gc3.synth.session import FOUND, IMPOSSIBLE, LARGEST, OPEN, TIME_OVER, Answer, Instance, Method

_GUESSES = 4
_SMALL = 60_000  # variables of a linear program that takes no time to speak of
_MOST_SPLITS = 500
_TOLERANCE = 1e-6

_GROWTH = (1.5, 2.0, 0.8)  # growth of the rounds from step to step


class SmallRelaxation(Method):
    """The bounds by linear programs, where they may save the guesses."""

    cost = 40

    def applies(self, instance: Instance) -> bool:
        """Returns whether the program is small."""
        return super().applies(instance) and instance.size < _SMALL

    def decide(self, instance: Instance) -> Answer | None:
        """Returns that it is impossible, if a bound says so."""
        session, demand, steps = instance.session, instance.demand, instance.steps
        need, whole = session.sink_bound(demand, steps), session.in_steps(demand, steps)
        return instance.below(need) or instance.below(whole)


class LargeRelaxation(SmallRelaxation, Method):
    """The bounds by linear programs, where a guess may save them."""

    cost = 60

    def applies(self, instance: Instance) -> bool:
        """Returns whether the program is large."""
        return Method.applies(self, instance) and instance.size >= _SMALL


class GuessedSplits(Method):
    """Rounds that meet the need of every target: growing, suggested by a program, near growing."""

    cost = 50

    def decide(self, instance: Instance) -> Answer | None:
        """Returns a schedule if one is found, or that no rounds meet the need of a target."""
        session, demand, steps, rounds = instance.session, instance.demand, instance.steps, instance.rounds
        group = instance.group
        chance = random.Random(session.seed)  # noqa: S311 - nothing secret
        tried: set[tuple[int, ...]] = set()
        guesses: list[list[int] | None] = [*plain_splits(steps, rounds), *[None] * _GUESSES]
        for guess in guesses + moved_splits(steps, rounds):
            if session.left <= 0:
                break
            session.tell("guessing the rounds of each step")
            if guess is not None and tuple(guess) in tried:
                continue
            slope = chance.choice((1.0, -0.5, 0.0))
            weights = [1.0 + slope * (steps - s) / steps + 0.2 * chance.random() for s in range(steps)]
            layout = flow_relaxation.sinks(instance.network, demand, steps, group, rounds, weights, guess)
            result = session.solvers.linear(layout.program, min(session.left, FIRST_SLICE * 2))
            if result.status == "infeasible" and guess is None:
                by_search = f"no {rounds} rounds give one rank what it needs, by branch and bound"
                exact = instance.below(session.sink_bound(demand, steps))
                return exact or Answer(IMPOSSIBLE, None, by_search)
            fixed = () if result.values is None else tuple(round(result.values[v]) for v in layout.rounds)
            if not fixed or fixed in tried:
                continue
            tried.add(fixed)
            found = greedy.chosen(instance, fixed, 2) or satisfied(instance, fixed, group, FIRST_SLICE)
            if found.status == FOUND:
                return found
        return None


class Repetition(Method):
    """A schedule of a part of the chunks in as large a part of the rounds, repeated."""

    cost = 70

    def applies(self, instance: Instance) -> bool:
        """Returns whether chunks and rounds have a common part with enough rounds for the steps."""
        return self._times(instance) > 1

    def decide(self, instance: Instance) -> Answer | None:
        """Returns the schedule if one is found for the part."""
        demand, times = instance.demand, self._times(instance)
        few = replace(demand, pieces=tuple(replace(p, count=p.count // times) for p in demand.pieces))
        found = instance.session.quick(FIRST_SLICE).solve(few, instance.steps, instance.rounds // times)
        if found.schedule is None:
            return None
        return Answer(FOUND, repeated(found.schedule, times, few, demand), f"{found.how}, {times} times")

    @staticmethod
    def _times(instance: Instance) -> int:
        common = math.gcd(instance.rounds, *(p.count for p in instance.demand.pieces))
        most = instance.rounds // instance.steps
        return max(t for t in range(1, common + 1) if common % t == 0 and (t == 1 or t <= most))


class BestSplit(Method):
    """The rounds of the fractional schedule of the fewest rounds."""

    cost = 80

    def applies(self, instance: Instance) -> bool:
        """Returns whether the linear program is not too large, or not needed."""
        return self._single(instance) or instance.size <= LARGEST

    @staticmethod
    def _single(instance: Instance) -> bool:
        return instance.steps == instance.rounds and instance.network.point_to_point

    def decide(self, instance: Instance) -> Answer | None:
        """Returns a schedule if one is found, or that the fewest rounds are more."""
        fixed = [1] * instance.steps if self._single(instance) else self._fewest(instance)
        if fixed is None or isinstance(fixed, Answer):
            return fixed
        found = greedy.chosen(instance, fixed)
        for group in itertools.chain(turnings(instance.network, instance.demand), instance.group.descending()):
            if found is not None:
                break
            answer = satisfied(instance, fixed, group, FIRST_SLICE * 5)
            if answer.status == OPEN:
                break  # a smaller group only makes it harder
            found = answer if answer.status == FOUND else None
        return found

    @staticmethod
    def _fewest(instance: Instance) -> list[int] | Answer | None:
        session, steps = instance.session, instance.steps
        session.tell("rounds of each step by branch and bound")
        layout = flow_relaxation.multicast(instance.network, instance.demand, steps, instance.group, whole=True)
        result = session.solvers.linear(layout.program, min(session.left, 20 * FIRST_SLICE), whole_cost=True)
        if result.values is None:
            return None
        fixed = [round(result.values[v]) for v in layout.rounds]
        if sum(fixed) > instance.rounds:
            if result.status == "optimal":
                return Answer(IMPOSSIBLE, None, f"the fewest rounds are {sum(fixed)}, by branch and bound")
            return None
        for i in range(instance.rounds - sum(fixed)):  # the rest is distributed
            fixed[-1 - i % steps] += 1
        return fixed


class EverySplit(Method):
    """All splits of the rounds over the steps that a linear program allows, most room first."""

    cost = 90

    def applies(self, instance: Instance) -> bool:
        """Returns whether there are few; elsewhere a step of several rounds may carry more than as many of one."""
        few = instance.network.divisible and instance.size <= _SMALL
        return few and math.comb(instance.rounds - 1, instance.steps - 1) <= _MOST_SPLITS

    def decide(self, instance: Instance) -> Answer | None:
        """Returns the schedule, that no split does, or that the time is over."""
        session, network, demand, steps = instance.session, instance.network, instance.demand, instance.steps
        room: list[tuple[float, tuple[int, ...]]] = []
        session.tell("bounding each split of the rounds")
        for split in every_split(instance.rounds, steps):
            layout = flow_relaxation.multicast(network, demand, steps, instance.group, split=split)
            result = session.solvers.linear(layout.program, session.left)
            if result.status == "unknown":
                return None
            if result.cost is not None and result.cost <= 1 + _TOLERANCE:
                room.append((result.cost, split))
        left = [split for _, split in sorted(room)]
        symmetric = [*turnings(network, demand), *instance.group.descending()][:-1]
        for seconds in slices(FIRST_SLICE):
            for split in list(left):
                for group in (*symmetric, trivial(network)):
                    if session.left <= 0:
                        return TIME_OVER
                    answer = satisfied(instance, split, group, seconds, ordered=True)
                    if answer.status == FOUND:
                        return answer
                    if answer.status == IMPOSSIBLE and group.order == 1:
                        left.remove(split)
            symmetric = []
            if not left:
                how = f"no split of {instance.rounds} rounds does: linear programs, formulas"
                return Answer(IMPOSSIBLE, None, how)
        raise AssertionError("the slices never end")


def growing(steps: int, rounds: int, growth: float) -> list[int]:
    """Returns rounds that grow by a factor from step to step, each step at least one.

    >>> growing(3, 7, 2.0)
    [1, 2, 4]
    """
    weights = [growth**s for s in range(steps)]
    exact = [rounds * w / sum(weights) for w in weights]
    fixed = [max(int(r), 1) for r in exact]
    for s in sorted(range(steps), key=lambda s: int(exact[s]) - exact[s])[: max(rounds - sum(fixed), 0)]:
        fixed[s] += 1
    largest = max(range(steps), key=lambda s: fixed[s])
    fixed[largest] = max(fixed[largest] + rounds - sum(fixed), 0)
    return fixed


def plain_splits(steps: int, rounds: int) -> list[list[int]]:
    """Returns rounds that grow, or shrink, from step to step.

    >>> plain_splits(5, 16)
    [[1, 2, 3, 4, 6], [1, 1, 2, 4, 8], [5, 4, 3, 2, 2]]
    """
    return [growing(steps, rounds, growth) for growth in _GROWTH]


def moved_splits(steps: int, rounds: int) -> list[list[int]]:
    """Returns the first of the plain splits with one round moved, since some splits are easier than others.

    >>> moved_splits(5, 16)[:2]
    [[1, 2, 3, 5, 5], [1, 2, 3, 3, 7]]
    """
    plain = growing(steps, rounds, _GROWTH[0])
    found: list[list[int]] = []
    for giver, taker in [(s, s + d) for s in range(steps - 1, max(steps - 4, -1), -1) for d in (1, -1)]:
        if 0 <= taker < steps and plain[giver] > 1:
            moved = list(plain)
            moved[giver] -= 1
            moved[taker] += 1
            found.append(moved)
    return found


def every_split(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Yields all ways to write a number as a sum of this many numbers.

    >>> list(every_split(4, 2))
    [(1, 3), (2, 2), (3, 1)]
    """
    if parts == 1:
        yield (total,)
        return
    for first in range(1, total - parts + 2):
        for others in every_split(total - first, parts - 1):
            yield (first, *others)
