"""Schedules as a formula (001 section 3.3, step by step), for demands that copy chunks.

Variables say that a chunk is on a rank after a step, and that it is sent over an edge in a step. With a group of
automorphisms, variables that it maps to each other become one, so the formula shrinks by the order of the group.

Where the rounds of each step are not left to the formula, each split of the rounds is its own. The splits are bounded
by linear programs, guessed, suggested by branch and bound, or all tried.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

from gc3.synth.bounds import flow_relaxation
from gc3.synth.methods import greedy
from gc3.synth.problem import FIRST_SLICE, FOUND, IMPOSSIBLE, OPEN, slices
from gc3.synth.problem.demand import Demand, Holding, Send
from gc3.synth.problem.network import UNREACHABLE, Capacity, Network
from gc3.synth.problem.schedule import Schedule, repeated
from gc3.synth.problem.symmetry import Group, trivial, turnings
from gc3.synth.session import LARGEST, TIME_OVER, Answer, Instance, Method
from gc3.synth.solvers import Formula, Solvers

_COMPARED = 24  # places used to order chunks
_MOST_REPEATED = 200  # how often a formula has a literal, for bandwidths that are fractions
_GUESSES = 4
_SMALL = 60_000  # variables of a linear program that takes no time to speak of
_MOST_SPLITS = 500
_TOLERANCE = 1e-6
_GROWTH = (1.5, 2.0, 0.8)  # growth of the rounds from step to step


class Satisfiability(Method):
    """A formula that chooses the rounds of each step, and decides."""

    cost = 100

    def decide(self, instance: Instance) -> Answer:
        """Returns the schedule, that there is none, or why that is not known."""
        network = instance.network
        if network.unit > 1 and max(network.unit, *network.whole) > _MOST_REPEATED:
            return Answer(OPEN, None, "not all splits of the rounds were tried: bandwidths without a simple unit")
        return decided(instance)


def decided(instance: Instance, holding: Holding | None = None) -> Answer:
    """Returns the answer of formulas with any rounds, in longer and longer attempts with fewer and fewer symmetries."""
    for seconds in slices(FIRST_SLICE):
        for group in instance.group.descending():
            if instance.session.left <= 0:
                return TIME_OVER
            answer = satisfied(instance, None, group, seconds, holding=holding)
            if answer.status == FOUND or (answer.status == IMPOSSIBLE and group.order == 1):
                return answer
    raise AssertionError("the slices never end")


def satisfied(
    instance: Instance,
    fixed: Sequence[int] | None,
    group: Group,
    seconds: float,
    *,
    ordered: bool = False,
    holding: Holding | None = None,
) -> Answer:
    """Returns the answer of the formula with these rounds, or any, and a group of symmetries; see `decide`."""
    session = instance.session
    shown = "for any rounds" if fixed is None else f"for rounds {', '.join(map(str, fixed))}"
    session.tell(f"formula {'within scratch' if holding else shown}, {group.order} symmetries")
    status, schedule = decide(
        session.solvers, instance.network, instance.demand, fixed, group, min(seconds, session.left),
        steps=instance.steps, total=instance.rounds, ordered=ordered, holding=holding,
    )  # fmt: skip
    if schedule is not None:
        return Answer(FOUND, schedule, f"satisfiability with {group.order} symmetries")
    return Answer(IMPOSSIBLE, None, "the formula has no model") if status == "unsat" else TIME_OVER


def decide(
    solvers: Solvers,
    network: Network,
    demand: Demand,
    rounds: Sequence[int] | None,
    group: Group,
    seconds: float,
    *,
    steps: int = 0,
    total: int = 0,
    ordered: bool = False,
    holding: Holding | None = None,
) -> tuple[str, Schedule | None]:
    """Finds a schedule that is invariant under a group: "sat" with it, "unsat" if there is none, or "unknown".

    The rounds of each step are given, or may be any with the sum `total` in `steps` steps. If the interchangeable
    chunks of a piece are `ordered`, it is sooner found that there is no schedule. A rank may be `holding` only so much
    in scratch.
    """
    encoding = _Encoding(network, demand, steps if rounds is None else len(rounds), group)
    encoding.limit(rounds, total)
    if holding is not None:
        encoding.hold(holding)
    if ordered:
        encoding.put_in_order()
    result = solvers.sat(encoding.formula, seconds)
    return result.status, encoding.schedule(result.true, rounds) if result.status == "sat" else None


class _Encoding:
    def __init__(self, network: Network, demand: Demand, steps: int, group: Group) -> None:
        self.network = network
        self.demand = demand
        self.steps = steps
        self.group = group
        self.formula = Formula()
        # By edge and step, the variables of sends over it with the chunk, for chunks of the first source of an orbit.
        self.sent: dict[tuple[int, int], list[tuple[int, int]]] = {}
        self.more: list[list[int]] = []  # by step and k: the step has more than k rounds
        self.held: list[
            tuple[int, dict[tuple[int, int], int]]
        ] = []  # the chunks, each with its variables by rank and step
        self.has: list[tuple[int, list[int]]] = []  # by chunk: its piece, and its variables by step and rank
        for chunk in group.chosen(demand):
            piece = demand.pieces[demand.piece_of[chunk]]
            self._chunk(chunk, piece.source, piece.targets)

    def _chunk(self, chunk: int, source: int, targets: frozenset[int]) -> None:
        network, formula, steps = self.network, self.formula, self.steps
        away = network.distance[source]
        has: dict[tuple[int, int], int] = {}
        for v in range(network.ranks):
            if v == source:
                continue
            left = min((network.distance[v][t] for t in targets), default=UNREACHABLE)
            for s in range(max(away[v], 1), steps - left + 1):
                has[v, s] = formula.variable()
            if v in targets:
                if (v, steps) not in has:
                    formula.clause()  # too far away
                    return
                formula.clause(has[v, steps])
        self.has.append((self.demand.piece_of[chunk], [has[k] for k in sorted(has, key=lambda k: (k[1], k[0]))]))
        self.held.append((chunk, has))
        for (v, s), now in has.items():
            self._arrival(chunk, source, v, s, now, has)

    def _arrival(self, chunk: int, source: int, v: int, s: int, now: int, has: dict[tuple[int, int], int]) -> None:
        """A chunk is on rank v after step s if it was there before, or is sent to it; a second send is never needed."""
        formula = self.formula
        before = has.get((v, s - 1))
        brought: list[int] = []
        for e in self.network.incoming[v]:
            u = self.network.edges[e][0]
            if u != source and (u, s - 1) not in has:
                continue
            send = formula.variable()
            brought.append(send)
            self.sent.setdefault((e, s - 1), []).append((chunk, send))
            formula.clause(-send, now)
            if u != source:
                formula.clause(-send, has[u, s - 1])
            if before is not None:
                formula.clause(-send, -before)
        if before is None:
            formula.clause(-now, *brought)
        else:
            formula.clause(-now, before, *brought)
            formula.clause(-before, now)

    def put_in_order(self) -> None:
        """Lets a chunk of a piece be where the next is, or in an earlier place of the list, in lexical order."""
        formula = self.formula
        for (piece, left), (other, right) in pairwise(self.has):
            if piece != other:
                continue
            same = 0  # the variable that says that they agree so far; 0 if that is certain
            for x, y in zip(left[:_COMPARED], right[:_COMPARED], strict=True):
                so_far = (-same,) if same else ()
                formula.clause(*so_far, x, -y)
                following = formula.variable()
                formula.clause(*so_far, -x, -y, following)
                formula.clause(*so_far, x, y, following)
                same = following

    def limit(self, rounds: Sequence[int] | None, total: int) -> None:
        """Enforces the bounds, with the given rounds or any with the sum `total`."""
        network, formula, group = self.network, self.formula, self.group
        if rounds is None:
            # A step's count of rounds in unary: the k-th variable says that there are more than k.
            self.more = [[formula.variable() for _ in range(total)] for _ in range(self.steps)]
            for row in self.more:
                for k in range(1, total):
                    formula.clause(-row[k], row[k - 1])
            formula.at_most([v for row in self.more for v in row], total)
        back = [group.edges[i] for i in group.inverse]
        for b, _ in group.bounds:
            members, chunks = network.bounds[b]
            for s in range(self.steps):
                literals = [send for e in members for moved in back for _, send in self.sent.get((moved[e], s), ())]
                if rounds is not None:
                    formula.at_most(literals, int(chunks * rounds[s]))
                else:
                    self._at_most_rounds(literals, chunks, self.more[s])

    def hold(self, holding: Holding) -> None:
        """Limits the chunks that a rank holds in a step: those that are there after it, and sent in it or later."""
        sends: dict[tuple[int, int], list[tuple[int, int]]] = {}  # by chunk and sender: step and variable
        for (e, s), listed in self.sent.items():
            for chunk, send in listed:
                sends.setdefault((chunk, self.network.edges[e][0]), []).append((s, send))
        held: dict[tuple[int, int], list[int]] = {}
        for chunk, has in self.held:
            piece = self.demand.pieces[self.demand.piece_of[chunk]]
            for (v, after), there in has.items():
                later = [send for s, send in sends.get((chunk, v), ()) if s >= after - 1]
                if later and (holding.targets or v not in piece.targets):
                    variable = self.formula.variable()
                    held.setdefault((v, after - 1), []).append(variable)
                    for send in later:
                        self.formula.clause(-there, -send, variable)
        back = [self.group.elements[i] for i in self.group.inverse]
        for v in sorted({home for home, _ in self.group.home}):
            for s in range(self.steps):
                self.formula.at_most([h for moved in back for h in held.get((moved[v], s), ())], holding.room)

    def _at_most_rounds(self, literals: Sequence[int], chunks: Capacity, more: Sequence[int]) -> None:
        """At most `chunks` of the literals for each round: a round that does not exist fills that much capacity."""
        if not literals:
            return
        whole, part = Fraction(chunks).as_integer_ratio()
        room = [-m for m in more for _ in range(whole)]
        taken = [v for v in literals for _ in range(part)]
        self.formula.at_most([*taken, *room], whole * len(more))

    def schedule(self, true: frozenset[int], rounds: Sequence[int] | None) -> Schedule:
        """Returns the schedule of a model of the formula."""
        demand, group, network = self.demand, self.group, self.network
        if rounds is None:
            rounds = [sum(v in true for v in row) for row in self.more]
        found: list[tuple[int, Send]] = []
        for (e, s), sends in self.sent.items():
            src, dst = network.edges[e]
            for chunk, send in sends:
                if send not in true:
                    continue
                for element, moved in enumerate(group.elements):
                    found.append((s, (group.chunk_image(demand, chunk, element), moved[src], moved[dst])))
        return Schedule.of(rounds, found)


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
