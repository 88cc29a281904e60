"""Decides instances (C, S, R): finds a schedule, or proves that there is none.

A session keeps what is known of a network: its symmetries, and the bounds by distance, cuts and linear programs, which
come first. Then come the methods, the cheap ones before the expensive ones. Each is found by its file in `methods`.
"""

from __future__ import annotations

import importlib
import math
import pkgutil
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache
from typing import ClassVar

from gc3.support.words import counted
from gc3.synth import methods as folder
from gc3.synth.bounds import cuts, flow_relaxation
from gc3.synth.bounds.cuts import Bound
from gc3.synth.methods.tree_packing import Forest
from gc3.synth.problem import ENDLESS, FIRST_SLICE, FOUND, IMPOSSIBLE, OPEN, TimeUp
from gc3.synth.problem.check import Cache, check
from gc3.synth.problem.demand import Demand, Piece
from gc3.synth.problem.network import UNREACHABLE, Network
from gc3.synth.problem.schedule import Schedule, multicasts, padded, pruned, stretched
from gc3.synth.problem.symmetry import Group, largest_group, trivial
from gc3.synth.solvers import Solvers

_MOST_SINKS = 16
LARGEST = 1_500_000  # variables of a linear program that takes too much memory
_LAID_OUT = 100_000  # variables of a linear program that are built in a second, at least
_SINGLE_ROUNDS_RANKS = 16


@dataclass(frozen=True, slots=True)
class Answer:
    """The result for an instance."""

    status: str  # "found", "impossible", or "open" if neither is known
    schedule: Schedule | None  # the schedule found, checked
    how: str  # the method that found it, the proof that there is none, or why neither is known


TIME_OVER = Answer(OPEN, None, "the time limit was reached")
# Where switches multicast, no method tries all schedules.
UNDECIDED = Answer(OPEN, None, "no schedule was found, and not all in which switches multicast or add up were tried")


@dataclass
class Session:
    """Solvers, a time limit, and results known about a network.

    Attributes:
        network: The network.
        solvers: The child process.
        deadline: The time limit, by `time.monotonic`.
        seed: Seed of all random choices.
        tell: Called with the name of each method tried.
        cache: The folder of schedules found earlier.
        moving: See `schedule.placed`.
        forests: The packed trees of schedules, by network and demand, over which others are made without moving sends.
    """

    network: Network
    solvers: Solvers
    deadline: float = math.inf
    seed: int = 0
    tell: Callable[[str], None] = lambda _what: None
    cache: Cache | None = None
    moving: bool = True
    forests: dict[tuple[int, str, int, int], Forest] = field(default_factory=dict[tuple[int, str, int, int], Forest])
    _largest: dict[str, Group] = field(default_factory=dict[str, Group], init=False)
    _cuts: dict[tuple[str, Fraction], Bound] = field(default_factory=dict[tuple[str, Fraction], Bound], init=False)
    _timed: dict[tuple[str, int, int], Bound] = field(default_factory=dict[tuple[str, int, int], Bound], init=False)
    _suggested: dict[tuple[str, int, int], flow_relaxation.Suggested | None] = field(
        default_factory=dict[tuple[str, int, int], "flow_relaxation.Suggested | None"], init=False
    )

    @property
    def left(self) -> float:
        """Remaining seconds."""
        return self.deadline - time.monotonic()

    def hurry(self) -> None:
        """Ends its caller at the time limit."""
        if time.monotonic() > self.deadline:
            raise TimeUp

    def quick(self, seconds: float) -> Session:
        """Returns the same session with its symmetries, for a few seconds at most, and without the cache."""
        small = replace(self, cache=None, deadline=min(self.deadline, time.monotonic() + seconds))
        small._largest = self._largest
        return small

    def group(self, demand: Demand) -> Group:
        """Returns the largest free group of symmetries."""
        key = f"{demand.name} {demand.root}"
        if key not in self._largest:
            self._largest[key] = largest_group(self.network, demand)
        return self._largest[key]

    def any_steps(self, demand: Demand, taken: int | None = None) -> Bound:
        """Returns the best bound for any number of steps; that by cuts if a schedule with `taken` rounds reaches it."""
        times = math.gcd(*(p.count for p in demand.pieces))
        key = (f"{demand.name} {demand.root}", Fraction(demand.chunks, times or 1))
        if key not in self._cuts:
            once = replace(demand, pieces=tuple(replace(p, count=p.count // times) for p in demand.pieces if times))
            best = self._any_steps(once, None if taken is None else Fraction(taken, times))
            if self.left <= 0:
                return Bound(best.rounds * times, best.proof)  # with more time it may be better
            self._cuts[key] = best
        return Bound(self._cuts[key].rounds * times, self._cuts[key].proof)

    def by_cuts(self, demand: Demand) -> Bound:
        """Returns the best bound on rounds that needs no solver and holds for any number of steps."""
        homes = None
        if not cuts.enumerates(self.network):
            homes = {home for home, _ in self.group(demand).home}
        best = cuts.cut_bound(self.network, demand, homes, min(self.left, ENDLESS))
        # A switch may carry several arrivals of a chunk as one message; what crosses a cut, crosses it at least once.
        for parts in cuts.plain_parts(self.network) if demand.routes or not self.network.in_switch else ():
            best = max(best, cuts.parts_bound(self.network, demand, parts), key=lambda b: b.rounds)
        return max(best, cuts.distance_bound(self.network, demand), key=lambda b: b.rounds) if demand.routes else best

    def _any_steps(self, demand: Demand, taken: Fraction | None) -> Bound:
        best = self.by_cuts(demand)  # of one source, or one target, it is exact
        exact = not demand.routes or demand.one_sided or best.rounds == taken
        if exact or self.size(demand, 1) > min(LARGEST, self.left * _LAID_OUT):
            return best
        self.tell("bounding the rounds of any number of steps")
        rounds = flow_relaxation.bound_of_routes(self.solvers, self.network, demand, self.group(demand), self.left)
        return max(best, Bound(rounds, "prices of links, checked exactly"), key=lambda b: b.rounds)

    def in_steps(self, demand: Demand, steps: int) -> Bound:
        """Returns the best bound on rounds for this many steps, by a linear program and its certificate."""
        key = (f"{demand.name} {demand.root}", demand.chunks, steps)
        if key not in self._timed:
            best = self.any_steps(demand)
            if cuts.least_steps(self.network, demand) > steps:
                return Bound(Fraction(UNREACHABLE), f"some data need more than {counted(steps, 'step')}")
            if multicasts(self.network, demand):
                return self.sink_bound(demand, steps)  # the linear program would count a multicast several times
            group = self.group(demand)
            if self.size(demand, steps) > min(LARGEST, self.left * _LAID_OUT):
                return best
            self.tell(f"bounding the rounds of {counted(steps, 'step')}")
            rounds, result, layout = flow_relaxation.bound(self.solvers, self.network, demand, steps, group, self.left)
            if demand.routes and group.order == 1:
                self._suggested[key] = flow_relaxation.suggested(self.network, result, layout)
            if rounds > best.rounds:
                best = Bound(rounds, f"prices of links in {counted(steps, 'step')}, checked exactly")
            if result.status != "optimal":
                return best  # the time limit was reached: another call may find more
            self._timed[key] = best
        return self._timed[key]

    def size(self, demand: Demand, steps: int) -> int:
        """Returns about the number of variables of the linear program of a demand."""
        moving = [p for p in demand.pieces if p.targets]
        flows_of_it = len({p.source for p in moving}) if demand.routes else sum(len(p.targets) for p in moving)
        return flows_of_it * len(self.network.edges) * steps // self.group(demand).order

    def sink_bound(self, demand: Demand, steps: int) -> Bound:
        """Returns the best bound on rounds for this many steps by the need of one target, proven by prices."""
        best = self.any_steps(demand)
        if demand.routes:
            return best  # the whole demand is no larger
        self.tell(f"bounding the rounds of {counted(steps, 'step')} by what one rank needs")
        back = self.network.reversed
        nothing = trivial(back)
        homes = sorted({home for home, _ in self.group(demand).home})
        for target in homes[:: -(-len(homes) // _MOST_SINKS)]:
            if len(self.network.edges) * steps > self.left * _LAID_OUT:
                break
            needs = [Piece(target, frozenset({p.source}), p.count) for p in demand.pieces if target in p.targets]
            if needs:
                alone = Demand("what one rank needs", demand.ranks, demand.chunks, target, tuple(needs))
                rounds, _, _ = flow_relaxation.bound(self.solvers, back, alone, steps, nothing, self.left)
                if rounds > best.rounds:
                    proof = f"prices for what rank {target} needs in {counted(steps, 'step')}, checked exactly"
                    best = Bound(rounds, proof)
        return best

    def solve(self, demand: Demand, steps: int, rounds: int) -> Answer:
        """Decides whether there is a schedule of this many steps and rounds.

        Raises:
            gc3.UserError: A solver is needed that is not installed.
        """
        known = None if self.cache is None else self.cache.get(self.network, demand, steps, rounds)
        if known is not None:
            return Answer(FOUND, known, "the cache")
        try:
            answer = self._decided(Instance(self, demand, steps, rounds))
        except TimeUp:
            answer = TIME_OVER
        if answer.schedule is None:
            return answer
        schedule = self.finished(demand, answer.schedule, steps, rounds)
        if self.cache is not None:
            self.cache.put(self.network, demand, steps, rounds, schedule)
        return Answer(FOUND, schedule, answer.how)

    def finished(self, demand: Demand, found: Schedule, steps: int, rounds: int) -> Schedule:
        """Returns a schedule that was found without useless sends, in all steps and rounds, and checked."""
        schedule = pruned(found, demand)
        schedule = padded(stretched(schedule, self.network, steps) or schedule, steps, rounds)
        check(self.network, demand, schedule)
        return schedule

    def _decided(self, instance: Instance) -> Answer:
        """The answer of the first method that has one."""
        proof = self._refuted(instance.demand, instance.steps, instance.rounds)
        if proof is not None:
            return Answer(IMPOSSIBLE, None, proof)
        in_switch = multicasts(self.network, instance.demand)
        for method in methods():
            answer = method.decide(instance) if method.applies(instance) else None
            if answer is not None:
                unsure = in_switch and not method.multicasts and answer.status != FOUND
                return UNDECIDED if unsure else answer
        raise AssertionError("the last method always has an answer")

    def _refuted(self, demand: Demand, steps: int, rounds: int) -> str | None:
        """A proof without a solver that an instance is impossible, if there is one."""
        away = cuts.least_steps(self.network, demand)
        if away == UNREACHABLE:
            return "some data cannot reach its targets"
        if away > min(steps, rounds):
            return f"some data are {counted(away, 'step')} away"
        bound = self.any_steps(demand)
        return f"{bound.proof} takes {counted(math.ceil(bound.rounds), 'round')}" if rounds < bound.rounds else None

    def fewest_rounds(self, demand: Demand, steps: int, rounds: int) -> str | None:
        """Returns a proof that `rounds` are the fewest for these steps and chunks; None if there is no simple one."""
        if rounds <= cuts.least_steps(self.network, demand):
            return f"some data are {counted(rounds, 'step')} away"
        bound = self.any_steps(demand)
        if rounds <= math.ceil(bound.rounds):
            return bound.proof
        if self.network.divisible and self.network.ranks <= _SINGLE_ROUNDS_RANKS:
            targets = sorted({t for p in demand.pieces for t in p.targets})
            if any(cuts.fewest_single_rounds(self.network, demand, t, rounds) >= rounds for t in targets):
                return "what one rank needs, by maximum flow over rounds"
        bound = self.sink_bound(demand, steps)
        if rounds > math.ceil(bound.rounds) and not demand.routes:
            group = self.group(demand)
            fewer = flow_relaxation.sinks(self.network, demand, steps, group, rounds - 1, [1.0] * steps)
            if self.solvers.linear(fewer.program, min(self.left, FIRST_SLICE * 5)).status == "infeasible":
                return f"{rounds - 1} rounds do not give one rank what it needs, by branch and bound"
        if rounds > math.ceil(bound.rounds):
            bound = self.in_steps(demand, steps)
        return bound.proof if rounds <= math.ceil(bound.rounds) else None

    def suggested(self, demand: Demand, steps: int) -> flow_relaxation.Suggested | None:
        """Returns what the program of `in_steps` suggests without symmetry, if it was solved."""
        return self._suggested.get((f"{demand.name} {demand.root}", demand.chunks, steps))


@dataclass(frozen=True, slots=True)
class Instance:
    """The question whether there is a schedule of a demand in this many steps and rounds."""

    session: Session  # what is known
    demand: Demand
    steps: int  # S
    rounds: int  # R

    @property
    def network(self) -> Network:
        """The network of the session."""
        return self.session.network

    @property
    def group(self) -> Group:
        """The largest free group of symmetries."""
        return self.session.group(self.demand)

    @property
    def size(self) -> int:
        """About the number of variables of its linear program."""
        return self.session.size(self.demand, self.steps)

    def fits(self, schedule: Schedule) -> bool:
        """Returns whether a schedule has no more steps and rounds."""
        return schedule.total_rounds <= self.rounds and len(schedule.rounds) <= self.steps

    def below(self, bound: Bound) -> Answer | None:
        """Returns that it is impossible, if a bound says so."""
        if self.rounds >= bound.rounds:
            return None
        return Answer(IMPOSSIBLE, None, f"{bound.proof}: at least {math.ceil(bound.rounds)} rounds")


class Method(ABC):
    """A way to decide instances. Each is found by its file in `methods`; the cheapest that applies is tried first."""

    cost: ClassVar[int]  # its place among the methods
    multicasts: ClassVar[bool] = False  # whether its proofs hold where switches multicast, too

    def applies(self, instance: Instance) -> bool:
        """Returns whether it may help; asked if no cheaper method has decided. Most do where chunks are copied."""
        return not instance.demand.routes

    @abstractmethod
    def decide(self, instance: Instance) -> Answer | None:
        """Returns its answer; None if it has none, and the next method is to be tried."""


@cache
def methods() -> tuple[Method, ...]:
    """Returns all methods, the cheapest first."""
    for module in pkgutil.iter_modules(folder.__path__):
        importlib.import_module(f"{folder.__name__}.{module.name}")
    return tuple(sorted((kind() for kind in Method.__subclasses__()), key=lambda method: method.cost))
