"""Decides instances (C, S, R): finds a schedule, or proves that there is none.

Cheap methods come before expensive ones: bounds by distance and cuts; breadth-first balance, maximum flow and greedy
choices; a linear program over time, whose optimum is proven exactly; whole rounds by branch and bound; formulas with
the largest free group of symmetries, with smaller ones, and with none, which decides.
"""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from gc3.support.words import counted
from gc3.synth import balance, check, cuts, flows, formula, in_switch, relaxation, rounding, splits
from gc3.synth.answer import FOUND, IMPOSSIBLE, OPEN, UNDECIDED, Answer
from gc3.synth.cache import Cache
from gc3.synth.cuts import Bound
from gc3.synth.demand import Demand, Piece
from gc3.synth.greedy import greedy
from gc3.synth.limits import ENDLESS, TimeUp, slices
from gc3.synth.network import UNREACHABLE, Network
from gc3.synth.rooted import turnings
from gc3.synth.schedule import Schedule, padded, pruned, repeated, stretched
from gc3.synth.solvers import Solvers
from gc3.synth.symmetry import Group, largest_group, trivial
from gc3.synth.trees import Forest

_GREEDY_TRIES, _GREEDY_SENDS = 12, 20_000
_MOST_SINKS, _GUESSES = 16, 4
_LARGEST = 1_500_000  # variables of a linear program that takes too much memory
_LAID_OUT = 100_000  # variables of a linear program that are built in a second, at least
_SMALL = 60_000  # variables of a linear program that takes no time to speak of
_FIRST_SLICE = 2.0  # seconds for a formula before a smaller group is tried
_SINGLE_ROUNDS_RANKS, _MOST_SPLITS = 16, 500
_MOST_REPEATED = 200  # how often a formula has a literal, for bandwidths that are fractions
_TOLERANCE = 1e-6


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
        moving: See `placing.placed`.
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
    _suggested: dict[tuple[str, int, int], relaxation.Suggested | None] = field(
        default_factory=dict[tuple[str, int, int], "relaxation.Suggested | None"], init=False
    )

    @property
    def left(self) -> float:
        """Remaining seconds."""
        return self.deadline - time.monotonic()

    def hurry(self) -> None:
        """Ends its caller at the time limit.

        Raises:
            TimeUp: The time limit was reached.
        """
        if time.monotonic() > self.deadline:
            raise TimeUp

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
        exact = not demand.routes or flows.one_sided(demand) or best.rounds == taken
        if exact or self._size(demand, 1) > min(_LARGEST, self.left * _LAID_OUT):
            return best
        self.tell("bounding the rounds of any number of steps")
        rounds = relaxation.bound_of_routes(self.solvers, self.network, demand, self.group(demand), self.left)
        return max(best, Bound(rounds, "prices of links, checked exactly"), key=lambda b: b.rounds)

    def in_steps(self, demand: Demand, steps: int) -> Bound:
        """Returns the best bound on rounds for this many steps, by a linear program and its certificate."""
        key = (f"{demand.name} {demand.root}", demand.chunks, steps)
        if key not in self._timed:
            best = self.any_steps(demand)
            if cuts.least_steps(self.network, demand) > steps:
                return Bound(Fraction(UNREACHABLE), f"some data need more than {counted(steps, 'step')}")
            if in_switch.applies(self.network, demand):
                return self.sink_bound(demand, steps)  # the linear program would count a multicast several times
            group = self.group(demand)
            if self._size(demand, steps) > min(_LARGEST, self.left * _LAID_OUT):
                return best
            self.tell(f"bounding the rounds of {counted(steps, 'step')}")
            rounds, result, layout = relaxation.bound(self.solvers, self.network, demand, steps, group, self.left)
            if demand.routes and group.order == 1:
                self._suggested[key] = relaxation.suggested(self.network, result, layout)
            if rounds > best.rounds:
                best = Bound(rounds, f"prices of links in {counted(steps, 'step')}, checked exactly")
            if result.status != "optimal":
                return best  # the time limit was reached: another call may find more
            self._timed[key] = best
        return self._timed[key]

    def _size(self, demand: Demand, steps: int) -> int:
        """About the number of variables of the linear program of a demand."""
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
                rounds, _, _ = relaxation.bound(self.solvers, back, alone, steps, nothing, self.left)
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
            method = self._in_switch if in_switch.applies(self.network, demand) else self._plain
            answer = method(demand, steps, rounds)
        except TimeUp:
            answer = Answer(OPEN, None, "the time limit was reached")
        if answer.schedule is None:
            return answer
        schedule = pruned(answer.schedule, demand)
        schedule = padded(stretched(schedule, self.network, steps) or schedule, steps, rounds)
        check.check(self.network, demand, schedule)
        if self.cache is not None:
            self.cache.put(self.network, demand, steps, rounds, schedule)
        return Answer(FOUND, schedule, answer.how)

    def _plain(self, demand: Demand, steps: int, rounds: int) -> Answer:
        """Decides whether there is a schedule in which every chunk is sent to each rank by itself."""
        answer = self._without_solver(demand, steps, rounds)
        return answer or (self._routing if demand.routes else self._multicast)(demand, steps, rounds)

    def _in_switch(self, demand: Demand, steps: int, rounds: int) -> Answer:
        """Searches for a schedule over trees that switches multicast, and for one over others in which they do not."""
        proof = self._refuted(demand, steps, rounds)
        if proof is not None:
            return Answer(IMPOSSIBLE, None, proof)
        self.tell("growing trees that switches multicast")
        schedule = in_switch.within(self.network, demand, self.group(demand), steps, rounds, self.left)
        if schedule is not None:
            return Answer(FOUND, schedule, "trees that switches multicast")
        bound = self.sink_bound(demand, steps)
        if rounds < bound.rounds:
            return Answer(IMPOSSIBLE, None, f"{bound.proof}: at least {_ceil(bound)} rounds")
        answer = self._plain(demand, steps, rounds)
        return answer if answer.status == FOUND else UNDECIDED

    def fewest_rounds(self, demand: Demand, steps: int, rounds: int) -> str | None:
        """Returns a proof that `rounds` are the fewest for these steps and chunks; None if there is no simple one."""
        if rounds <= cuts.least_steps(self.network, demand):
            return f"some data are {counted(rounds, 'step')} away"
        bound = self.any_steps(demand)
        if rounds <= math.ceil(bound.rounds):
            return bound.proof
        if self.network.divisible and self.network.ranks <= _SINGLE_ROUNDS_RANKS:
            targets = sorted({t for p in demand.pieces for t in p.targets})
            if any(flows.fewest_single_rounds(self.network, demand, t, rounds) >= rounds for t in targets):
                return "what one rank needs, by maximum flow over rounds"
        bound = self.sink_bound(demand, steps)
        if rounds > math.ceil(bound.rounds) and not demand.routes:
            group = self.group(demand)
            fewer = relaxation.sinks(self.network, demand, steps, group, rounds - 1, [1.0] * steps)
            if self.solvers.linear(fewer.program, min(self.left, _FIRST_SLICE * 5)).status == "infeasible":
                return f"{rounds - 1} rounds do not give one rank what it needs, by branch and bound"
        if rounds > math.ceil(bound.rounds):
            bound = self.in_steps(demand, steps)
        return bound.proof if rounds <= math.ceil(bound.rounds) else None

    def _without_solver(self, demand: Demand, steps: int, rounds: int) -> Answer | None:
        network = self.network
        proof = self._refuted(demand, steps, rounds)
        if proof is not None:
            return Answer(IMPOSSIBLE, None, proof)
        if demand.routes:
            if not (network.divisible and flows.one_sided(demand) and steps >= rounds):
                return None
            schedule = flows.one_sided_schedule(network, demand, [1] * rounds)
            if schedule is None:  # any schedule of this many rounds can be cut into single rounds
                return Answer(IMPOSSIBLE, None, f"the maximum flow over {rounds} rounds falls short")
            return Answer(FOUND, schedule, "maximum flow over time")
        found = None
        if self.any_steps(demand).rounds <= steps:
            found = self._greedy(demand, [1] * min(steps, rounds))
        if found is None and balance.applies(network, demand):
            schedule = balance.balanced(network, demand, self.group(demand), self.hurry)
            if schedule.total_rounds <= rounds:
                found = Answer(FOUND, schedule, "breadth-first balance")
        return found

    def _refuted(self, demand: Demand, steps: int, rounds: int) -> str | None:
        """A proof without a solver that an instance is impossible, if there is one."""
        away = cuts.least_steps(self.network, demand)
        if away == UNREACHABLE:
            return "some data cannot reach its targets"
        if away > min(steps, rounds):
            return f"some data are {counted(away, 'step')} away"
        bound = self.any_steps(demand)
        return f"{bound.proof} takes {counted(_ceil(bound), 'round')}" if rounds < bound.rounds else None

    def _greedy(self, demand: Demand, rounds: Sequence[int], tries: int = _GREEDY_TRIES) -> Answer | None:
        if demand.chunk_count * self.network.ranks > _GREEDY_SENDS:
            return None
        self.tell("making greedy choices")
        for attempt in range(tries):
            schedule = greedy(self.network, demand, rounds, self.seed * _GREEDY_TRIES + attempt, self.hurry)
            if schedule is not None:
                return Answer(FOUND, schedule, "greedy choices")
        return None

    def _routing(self, demand: Demand, steps: int, rounds: int) -> Answer:
        if self.group(demand).order == 1 and self._size(demand, steps) > flows.MANY:
            answer = self._rounded(demand, steps, rounds)
            if answer is not None:
                return answer
        away = cuts.least_steps(self.network, demand)
        tried = sorted({min(steps, away), steps})
        for count in tried:
            for group in self.group(demand).descending():
                if self.left <= 0:
                    return Answer(OPEN, None, "the time limit was reached")
                self.tell(f"flow over {counted(count, 'step')}, {group.order} symmetries")
                last = group.order == 1 and count == steps
                large = self._size(demand, count) > flows.MANY
                seconds = self.left if last else min(self.left, _FIRST_SLICE * (50 if large else 5))
                status, schedule = flows.routed(self.solvers, self.network, demand, count, group, seconds)
                if schedule is not None and schedule.total_rounds <= rounds:
                    if count == steps or stretched(schedule, self.network, steps) is not None:
                        return Answer(FOUND, schedule, f"flow over {counted(count, 'step')}")
                elif status == "optimal" and schedule is not None:
                    bound = self.in_steps(demand, steps)
                    if rounds < bound.rounds:
                        return Answer(IMPOSSIBLE, None, f"{bound.proof}: at least {_ceil(bound)} rounds")
                    if last:
                        fewest = schedule.total_rounds
                        return Answer(IMPOSSIBLE, None, f"the fewest rounds are {fewest}, by branch and bound")
        return Answer(OPEN, None, "the time limit was reached")

    def _rounded(self, demand: Demand, steps: int, rounds: int) -> Answer | None:
        """Rounds a fractional flow, for integer programs that are too large and have no symmetry."""
        bound = self.in_steps(demand, steps)
        if rounds < bound.rounds:
            return Answer(IMPOSSIBLE, None, f"{bound.proof}: at least {_ceil(bound)} rounds")
        suggested = self._suggested.get((f"{demand.name} {demand.root}", demand.chunks, steps))
        if suggested is None or not self.network.point_to_point:
            return None
        fixed = rounding.split(suggested.rounds, rounds)
        self.tell(f"cheapest flow in rounds {', '.join(map(str, fixed))}")
        sent = rounding.rounded(
            self.solvers, self.network, demand, fixed, suggested.price, self.left, self.seed, self.tell
        )
        if sent is None:
            return None
        ways = [w for k, a in sent.items() for w in flows.ways(self.network, demand, k, a, steps)]
        return Answer(FOUND, Schedule.of(fixed, ways), "a fractional flow, rounded")

    def _multicast(self, demand: Demand, steps: int, rounds: int) -> Answer:
        size = self._size(demand, steps)
        # If the linear program is large, a guess may save it; if it is small, it may save the guesses.
        for method in (self._bounded, self._guessed) if size < _SMALL else (self._guessed, self._bounded):
            answer = method(demand, steps, rounds)
            if answer is not None:
                return answer
        return (
            self._repeated(demand, steps, rounds)
            or self._split(demand, steps, rounds)
            or self._each_split(demand, steps, rounds)
            or self._any_split(demand, steps, rounds)
        )

    def _repeated(self, demand: Demand, steps: int, rounds: int) -> Answer | None:
        """Searches for a schedule of a part of the chunks in as large a part of the rounds, to be repeated."""
        common = math.gcd(rounds, *(p.count for p in demand.pieces))
        times = max(t for t in range(1, common + 1) if common % t == 0 and (t == 1 or rounds >= t * steps))
        if times == 1:
            return None
        few = replace(demand, pieces=tuple(replace(p, count=p.count // times) for p in demand.pieces))
        small = replace(self, cache=None, deadline=min(self.deadline, time.monotonic() + _FIRST_SLICE))
        small._largest = self._largest
        found = small.solve(few, steps, rounds // times)
        if found.schedule is None:
            return None
        return Answer(FOUND, repeated(found.schedule, times, few, demand), f"{found.how}, {times} times")

    def _bounded(self, demand: Demand, steps: int, rounds: int) -> Answer | None:
        for bound in (self.sink_bound(demand, steps), self.in_steps(demand, steps)):
            if rounds < bound.rounds:
                return Answer(IMPOSSIBLE, None, f"{bound.proof}: at least {_ceil(bound)} rounds")
        return None

    def _split(self, demand: Demand, steps: int, rounds: int) -> Answer | None:
        """Tries the rounds of a fractional schedule."""
        fixed = self._whole_rounds(demand, steps, rounds, self.group(demand))
        if fixed is None or isinstance(fixed, Answer):
            return fixed
        found = self._greedy(demand, fixed)
        for group in itertools.chain(turnings(self.network, demand), self.group(demand).descending()):
            if found is not None:
                break
            answer = self._formula(demand, fixed, group, _FIRST_SLICE * 5, steps, rounds)
            if answer.status == OPEN:
                break  # a smaller group only makes it harder
            found = answer if answer.status == FOUND else None
        return found

    def _each_split(self, demand: Demand, steps: int, rounds: int) -> Answer | None:
        """Tries all splits of the rounds over the steps that a linear program allows, most room first."""
        if not self.network.divisible or self._size(demand, steps) > _SMALL:
            return None  # on other networks a step of several rounds may carry more than as many steps of one
        if math.comb(rounds - 1, steps - 1) > _MOST_SPLITS:
            return None
        group = self.group(demand)
        room: list[tuple[float, tuple[int, ...]]] = []
        self.tell("bounding each split of the rounds")
        for split in splits.every_split(rounds, steps):
            layout = relaxation.multicast(self.network, demand, steps, group, split=split)
            result = self.solvers.linear(layout.program, self.left)
            if result.status == "unknown":
                return None
            if result.cost is not None and result.cost <= 1 + _TOLERANCE:
                room.append((result.cost, split))
        left = [split for _, split in sorted(room)]
        symmetric = [*turnings(self.network, demand), *self.group(demand).descending()][:-1]
        for seconds in slices(_FIRST_SLICE):
            for split in list(left):
                for group in (*symmetric, trivial(self.network)):
                    if self.left <= 0:
                        return Answer(OPEN, None, "the time limit was reached")
                    answer = self._formula(demand, split, group, seconds, steps, rounds, ordered=True)
                    if answer.status == FOUND:
                        return answer
                    if answer.status == IMPOSSIBLE and group.order == 1:
                        left.remove(split)
            symmetric = []
            if not left:
                return Answer(IMPOSSIBLE, None, f"no split of {rounds} rounds does: linear programs, formulas")
        raise AssertionError("the slices never end")

    def _any_split(self, demand: Demand, steps: int, rounds: int) -> Answer:
        """Lets the formula choose the rounds, and decides."""
        if self.network.unit > 1 and max(self.network.unit, *self.network.whole) > _MOST_REPEATED:
            return Answer(OPEN, None, "not all splits of the rounds were tried: bandwidths without a simple unit")
        for seconds in slices(_FIRST_SLICE):
            for group in self.group(demand).descending():
                if self.left <= 0:
                    return Answer(OPEN, None, "the time limit was reached")
                answer = self._formula(demand, None, group, seconds, steps, rounds)
                if answer.status == FOUND or (answer.status == IMPOSSIBLE and group.order == 1):
                    return answer
        raise AssertionError("the slices never end")

    def _guessed(self, demand: Demand, steps: int, rounds: int) -> Answer | None:
        """Tries rounds that meet the need of every target: growing, suggested by a program, near growing."""
        group = self.group(demand)
        chance = random.Random(self.seed)  # noqa: S311 - nothing secret
        tried: set[tuple[int, ...]] = set()
        guesses: list[list[int] | None] = [*splits.plain_splits(steps, rounds), *[None] * _GUESSES]
        for growing in guesses + splits.moved_splits(steps, rounds):
            if self.left <= 0:
                break
            self.tell("guessing the rounds of each step")
            if growing is not None and tuple(growing) in tried:
                continue
            slope = chance.choice((1.0, -0.5, 0.0))
            weights = [1.0 + slope * (steps - s) / steps + 0.2 * chance.random() for s in range(steps)]
            layout = relaxation.sinks(self.network, demand, steps, group, rounds, weights, growing)
            result = self.solvers.linear(layout.program, min(self.left, _FIRST_SLICE * 2))
            if result.status == "infeasible" and growing is None:
                bound = self.sink_bound(demand, steps)
                exact = f"{bound.proof}: at least {_ceil(bound)} rounds"
                by_search = f"no {rounds} rounds give one rank what it needs, by branch and bound"
                return Answer(IMPOSSIBLE, None, exact if rounds < bound.rounds else by_search)
            fixed = () if result.values is None else tuple(round(result.values[v]) for v in layout.rounds)
            if not fixed or fixed in tried:
                continue
            tried.add(fixed)
            found = self._greedy(demand, fixed, 2)
            if found is None:
                found = self._formula(demand, fixed, group, _FIRST_SLICE, steps, rounds)
            if found.status == FOUND:
                return found
        return None

    def _formula(
        self,
        demand: Demand,
        fixed: Sequence[int] | None,
        group: Group,
        seconds: float,
        steps: int,
        rounds: int,
        *,
        ordered: bool = False,
    ) -> Answer:
        shown = "any rounds" if fixed is None else f"rounds {', '.join(map(str, fixed))}"
        self.tell(f"formula for {shown}, {group.order} symmetries")
        seconds = min(seconds, self.left)
        status, schedule = formula.decide(
            self.solvers, self.network, demand, fixed, group, seconds, steps=steps, total=rounds, ordered=ordered
        )
        if schedule is not None:
            return Answer(FOUND, schedule, f"satisfiability with {group.order} symmetries")
        if status == "unsat":
            return Answer(IMPOSSIBLE, None, "the formula has no model")
        return Answer(OPEN, None, "the time limit was reached")

    def _whole_rounds(self, demand: Demand, steps: int, rounds: int, group: Group) -> list[int] | Answer | None:
        """Good rounds for each step: those of the fractional schedule of the fewest rounds; the rest is distributed."""
        if steps == rounds and self.network.point_to_point:
            return [1] * steps
        if self._size(demand, steps) > _LARGEST:
            return None
        self.tell("rounds of each step by branch and bound")
        layout = relaxation.multicast(self.network, demand, steps, group, whole=True)
        result = self.solvers.linear(layout.program, min(self.left, 20 * _FIRST_SLICE), whole_cost=True)
        if result.values is None:
            return None
        fixed = [round(result.values[v]) for v in layout.rounds]
        if sum(fixed) > rounds:
            if result.status == "optimal":
                return Answer(IMPOSSIBLE, None, f"the fewest rounds are {sum(fixed)}, by branch and bound")
            return None
        for i in range(rounds - sum(fixed)):
            fixed[-1 - i % steps] += 1
        return fixed


def _ceil(bound: Bound) -> int:
    return math.ceil(bound.rounds)
