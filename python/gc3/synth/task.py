"""A collective to be synthesized on a network, combining ones included: instances, fewest steps, and the frontier."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from fractions import Fraction
from functools import cached_property, partial

from gc3 import errors
from gc3.collectives import Collective
from gc3.support.words import counted
from gc3.synth import result
from gc3.synth.bounds import allreduce_bound, broadcast_bound, combining_bound, cuts, is_broadcast
from gc3.synth.bounds.cuts import Bound
from gc3.synth.compose import compose, grown, quick, solved
from gc3.synth.methods import tree_growth
from gc3.synth.methods.timed_trees import Costs, Timed, timed
from gc3.synth.methods.tree_growth import NEAR, Planned, many_chunks
from gc3.synth.problem import FOUND, IMPOSSIBLE, OPEN, TimeUp, demand
from gc3.synth.problem.demand import Demand, Problem
from gc3.synth.problem.network import UNREACHABLE, Network
from gc3.synth.problem.schedule import Schedule, multicasts, pruned
from gc3.synth.result import Candidates, Outcome, Point, Result
from gc3.synth.session import TIME_OVER, Session

_MOST_STEPS = 1 << 12
_MANY_RANKS = 64
_FOR_PROGRAM = 0.5  # of the time that is left when there is a result: to compile it, not to improve it
_LANES = 4  # of pipelined reductions
_SLICES = (0.01, 0.08)  # the fraction of the remaining time for one candidate of a frontier, at first and then


class Task:
    """A collective on a network."""

    def __init__(self, session: Session, collective: str | Collective, root: int = 0) -> None:
        """Takes the collective by name, or a custom one.

        Raises:
            gc3.UserError: The collective is unknown, or has another number of ranks than the network.
        """
        name = collective if isinstance(collective, str) else demand.custom_name(collective.name)
        if isinstance(collective, str) and collective not in demand.NAMES:
            raise result.unknown(collective)
        self.name = name
        self.session = session
        self.network = session.network
        self.root = root
        self.collective = collective
        if not isinstance(collective, str) and collective.data is not None:
            ranks = len(collective.data.inputs)
            if ranks != self.network.ranks:
                raise errors.error(
                    "TooFewRanks" if ranks > self.network.ranks else "BadCollective",
                    f"'{name}' is for {ranks} ranks, '{self.network.name}' has {self.network.ranks}",
                )
        errors.whole(root, "root", 0, self.network.ranks - 1)
        self.unit = demand.least_chunks(name, self.network.ranks) if isinstance(collective, str) else 1
        self.undecided: dict[int, tuple[tuple[int, int], ...]] = {}  # candidates (C, R) of a frontier, by steps
        self._made: Problem | None = None
        # Where reductions are solved: as their inverse.
        back = self.network.reversed
        self._inverse = session if back is self.network else replace(session, network=back)

    def unmoved(self) -> Task:
        """Returns the same task with sends that are not moved to save rounds: see `schedule.placed`."""
        return Task(replace(self.session, moving=False), self.collective, self.root)

    @cached_property
    def composed(self) -> bool:
        """Whether the search is for a reduction followed by a distribution, as for an all-reduce."""
        return len(self.problem(self.unit).demands) > 1

    def problem(self, chunks: int) -> Problem:
        """Returns the problem of `chunks` chunks.

        Raises:
            gc3.UserError: The number of chunks is invalid for the collective, or that cannot be synthesized.
        """
        if self._made is None or self._made.chunks != chunks:
            if isinstance(self.collective, str):
                self._made = demand.builtin_problem(self.name, self.network.ranks, chunks, self.root)
            else:
                self._made = demand.custom_problem(self.collective, chunks)
        return self._made

    def parts(self, chunks: int) -> list[tuple[Session, Demand]]:
        """Returns the demands of `chunks` chunks, each with the network on which a schedule for it is searched for."""
        wanted = self.problem(chunks)
        sides = ((self._inverse, wanted.reduced), (self.session, wanted.spread))
        return [(where, part) for where, part in sides if part is not None]

    def any_algorithm_steps(self) -> int:
        """Returns the steps that any algorithm needs because of distances, for one that reduces too."""
        self.least_steps()
        return max(self.problem(self.unit).diameter(self.network.distance), 1)

    def least_steps(self) -> int:
        """Returns the steps needed because of distances; for an all-reduce, those of both halves.

        Raises:
            gc3.UserError: Some data cannot reach its targets.
        """
        return sum(self._least)

    @cached_property
    def _least(self) -> list[int]:
        away = [cuts.least_steps(where.network, wanted) for where, wanted in self.parts(self.unit)]
        if UNREACHABLE in away:
            steps = self.network.distance
            a, b = next((a, b) for a, row in enumerate(steps) for b, far in enumerate(row) if far == UNREACHABLE)
            why = f"no links or NICs lead from rank {a} to rank {b}, directly or through other ranks"
            raise errors.error("NoPath", f"on '{self.network.name}' some data cannot reach its targets: {why}")
        return [max(steps, 1) for steps in away]

    def any_steps(self) -> Bound:
        """Returns the bound on R/C that holds for any number of steps and any algorithm."""
        return self._reduced if self.composed else self.any_steps_searched()

    def any_steps_searched(self) -> Bound:
        """Returns that of the algorithms in the search: for an all-reduce, of a reduce-scatter and an all-gather."""
        found = [where.any_steps(wanted) for where, wanted in self.parts(self.unit)]
        proof = found[0].proof
        if found[-1] != found[0]:
            proof = f"{found[1].proof} while {self._second}; {proof} while reducing"
        return Bound(sum((b.rounds for b in found), Fraction(0)) / self.unit, proof)

    def of_chunks(self, chunks: int) -> Bound:
        """Returns the bound on the rounds of this many chunks in any number of steps and any algorithm."""
        best = self.any_steps()
        best = Bound(Fraction(math.ceil(best.rounds * chunks)), best.proof)
        if self.composed:
            return best
        ((where, part),) = self.parts(chunks)
        if not is_broadcast(part):
            return best
        inverse = self.problem(chunks).reduced is not None
        return max(best, broadcast_bound(where.network, part, inverse=inverse), key=lambda b: b.rounds)

    @property
    def _second(self) -> str:
        return "gathering" if self.name == "allreduce" else "distributing"

    @cached_property
    def _reduced(self) -> Bound:
        if self.name == "allreduce":
            return allreduce_bound(self.network)
        return combining_bound(self.network, self.problem(self.unit).items)

    def in_steps(self, steps: int) -> Bound:
        """Returns the bound on R/C for this many steps; for an all-reduce, of a reduce-scatter and an all-gather."""
        parts = self.parts(self.unit)
        if not self.composed:
            where, wanted = parts[0]
            bound = where.in_steps(wanted, steps)
            return Bound(bound.rounds / self.unit, bound.proof)
        (first, reduced), (second, spread) = parts
        splits = [
            (first.in_steps(reduced, a).rounds + second.in_steps(spread, b).rounds, (a, b))
            for a, b in result.halves(steps, *self._least)
        ]
        if not splits:
            need = " and ".join(map(str, sorted(set(self._least))))
            halves = "both halves need" if len(set(self._least)) == 1 else "the halves need"
            return Bound(Fraction(UNREACHABLE), f"{halves} {need} step{'' if need == '1' else 's'}")
        rounds, (a, b) = min(splits)
        names = ("a reduce-scatter", "an all-gather") if self.name == "allreduce" else ("a reduction", "a distribution")
        return Bound(rounds / self.unit, f"{names[0]} in {a} and {names[1]} in {counted(b, 'step')}")

    def solve(self, chunks: int, steps: int, rounds: int, *, prove: bool = True) -> Outcome:
        """Decides an instance.

        Args:
            chunks: C.
            steps: S.
            rounds: R.
            prove: Also search for a proof that there are no fewer rounds.

        Raises:
            gc3.UserError: The numbers are invalid for the collective.
        """
        begun = time.monotonic()
        errors.whole(steps, "steps", 1, _MOST_STEPS)
        errors.whole(rounds, "rounds", steps, 1 << 20)
        parts = self.parts(chunks)
        if len(parts) > 1:
            return self._compose(chunks, steps, rounds, begun)
        where, wanted = parts[0]
        answer = where.solve(wanted, steps, rounds)
        fewest = where.fewest_rounds(wanted, steps, rounds) if prove and answer.schedule is not None else None
        made = None
        if answer.schedule is not None:
            made = self._result(chunks, [answer.schedule])
            if where is self.session:
                # Chains of fused instructions would need dozens of threadblocks on each of so many ranks.
                made = replace(made, lanes=int(self.network.ranks >= _MANY_RANKS))
        return Outcome(answer.status, made, answer.how, fewest, time.monotonic() - begun)

    def _result(self, chunks: int, schedules: Sequence[Schedule]) -> Result:
        wanted = self.problem(chunks)
        spread = schedules[-1] if wanted.spread is not None else None
        return result.of(self.network, wanted, schedules[0] if wanted.reduced is not None else None, spread)

    def _compose(self, chunks: int, steps: int, rounds: int, begun: float) -> Outcome:
        (first_where, reduced), (second_where, spread) = self.parts(chunks)
        alike = self._alike(chunks)
        is_open: str | None = None
        for first_steps, second_steps in result.halves(steps, *self._least):
            for first_rounds, second_rounds in result.halves(rounds, *self._least):
                if first_rounds < first_steps or second_rounds < second_steps:
                    continue
                second = second_where.solve(spread, second_steps, second_rounds)
                first = second
                same = alike and (first_steps, first_rounds) == (second_steps, second_rounds)
                if second.schedule is not None and not same:
                    first = first_where.solve(reduced, first_steps, first_rounds)
                is_open = next((a.how for a in (first, second) if a.status == OPEN), is_open)
                if first.schedule is not None and second.schedule is not None:
                    made = self._result(chunks, [first.schedule, second.schedule])
                    fewest = self._fewest_composed(chunks, steps, rounds)
                    return Outcome(FOUND, made, second.how, fewest, time.monotonic() - begun, composed=True)
        proof = self._reduced
        if rounds < proof.rounds * chunks:
            return Outcome(IMPOSSIBLE, None, proof.proof, None, time.monotonic() - begun)
        if is_open is not None:
            return self._open(begun, is_open)
        how = "no reduce-scatter and all-gather fit; no other form was searched for"
        if self.name != "allreduce":
            how = "no reduction and distribution fit; no other form was searched for"
        return Outcome(IMPOSSIBLE, None, how, None, time.monotonic() - begun, composed=True)

    def _fewest_composed(self, chunks: int, steps: int, rounds: int) -> str | None:
        """The halves' bounds for any steps: an algorithm built from the two has no fewer rounds."""
        halves = [where.any_steps(wanted) for where, wanted in self.parts(chunks)]
        if rounds <= self.least_steps():
            first, second = self._least
            return (
                f"each half takes {counted(first, 'step')}" if first == second else "each half takes its fewest steps"
            )
        proof = self.any_steps_searched().proof
        return f"both halves: {proof}" if rounds <= sum(math.ceil(b.rounds) for b in halves) else None

    def alone(self, chunks: int) -> Outcome:
        """Returns the schedule of one rank, which sends nothing."""
        made = self._planned(chunks, lambda _where, _wanted: Schedule((), ()))
        return Outcome(FOUND, made, "one rank needs nothing", None, 0.0)

    def pipelined(self, chunks: int) -> Outcome:
        """Finds a schedule for many chunks that are pipelined over trees (see `tree_packing` and `tree_growth`).

        If every rank needs all data, R/C approaches the bound, because the trees load the network exactly as the bound
        does.

        Args:
            chunks: C; a larger C comes closer to the bound.

        Raises:
            gc3.UserError: The number is invalid for the collective, or some data cannot reach its targets.
        """
        begun = time.monotonic()

        planned: list[Planned] = []

        def plan(where: Session, wanted: Demand) -> Schedule:
            planned.append(many_chunks(where, wanted, 1 + self.composed))
            return planned[-1].schedule

        if (made := self._within_time(chunks, plan)) is None:
            return self._open(begun)
        how = "trees, pipelined"
        ratio: Fraction | None = None
        ratios = [each.ratio for each in planned if each.ratio is not None]
        if len(ratios) == len(planned):
            times = (1 + self._alike(chunks)) * self.problem(chunks).demands[0].chunks
            ratio = sum(ratios, Fraction(0)) * times / chunks
            packed = any(each.packed for each in planned)
            how = f"{'packed trees' if packed else how}: with more chunks R/C tends to {ratio}"
        found = self._of_parts(replace(made, lanes=self._lanes(chunks)), how, begun)
        return self._overlapped(found, made, ratio, begun) if self.composed else found

    def _overlapped(self, found: Outcome, made: Result, ratio: Fraction | None, begun: float) -> Outcome:
        """The outcome with the halves of the composition overlapped, or of pairs of trees if these are better."""
        enough = self.any_steps().rounds * NEAR
        if made.schedule.total_rounds <= enough * made.chunks:
            return found
        with self.reserving(_FOR_PROGRAM):
            better = tree_growth.best_overlap(self.session, made, enough, ratio, found.how)
        if better is None:
            return found
        whole = replace(better.result, lanes=_LANES)
        return Outcome(FOUND, whole, better.how, None, time.monotonic() - begun, better.composed)

    def hierarchical(self, chunks: int, *, overlapped: bool = False) -> Outcome:
        """Composes a schedule of schedules inside nodes and between them (see `gc3.synth.compose`).

        Args:
            chunks: C.
            overlapped: Lets phases overlap, which takes fewer rounds and more steps.

        Raises:
            gc3.UserError: The number is invalid for the collective, or the network has no similar nodes.
        """
        begun, fewest = time.monotonic(), math.ceil(self.any_steps().rounds * chunks)
        best: tuple[Result, str] | None = None
        # Parts of few steps may overlap better than grown trees, or worse.
        for solve in (grown, quick) if overlapped else (solved,):
            if best is None or best[0].schedule.total_rounds > fewest:
                with self.reserving(0.0 if best is None else _FOR_PROGRAM):
                    found = self._composed_of(chunks, solve, overlapped)
                if found and (best is None or found[0].schedule.total_rounds < best[0].schedule.total_rounds):
                    best = found
        return self._open(begun) if best is None else self._of_parts(*best, begun)

    def _composed_of(
        self, chunks: int, solve: Callable[[Session, Network, Demand], Schedule], overlapped: bool
    ) -> tuple[Result, str] | None:
        """A composition of parts that `solve` finds, and how it was made; None at the time limit."""
        parts: list[str] = []

        def plan(where: Session, wanted: Demand) -> Schedule:
            made = compose(where.network, wanted, partial(solve, where), where.hurry)
            parts.append(", ".join(f"{name} S={steps} R={rounds}" for name, steps, rounds in made.parts))
            return pruned(made.schedule, wanted)  # stages may bring a chunk again

        made = self._within_time(chunks, plan)
        if made is None:
            return None
        how, better = f"composed: {'; inverse of '.join(parts[::-1])}", None
        if overlapped:
            with suppress(TimeUp):
                better = tree_growth.overlapped_halves(self.session, made, how)
        return (made, how) if better is None else (replace(better.result, lanes=self._lanes(chunks)), better.how)

    @staticmethod
    def _open(begun: float, how: str = TIME_OVER.how) -> Outcome:
        return Outcome(OPEN, None, how, None, time.monotonic() - begun)

    def _lanes(self, chunks: int) -> int:
        return 1 if self.problem(chunks).reduced is None else _LANES

    def timed(self, chunks: int, costs: Callable[[Network, bool, int], Costs], opening: float = 0.0) -> Outcome:
        """Finds a schedule whose objective is the seconds of a size on a machine (see `timed_trees`).

        Args:
            chunks: C.
            costs: Called with a network, whether it is the reversed one, and the number of chunks of the largest buffer
                of a rank; returns the costs of its edges.
            opening: What the first use of an edge costs in addition, in units of the dearest hop.

        Raises:
            gc3.UserError: The number is invalid for the collective, or some data cannot reach its targets.
        """
        begun = time.monotonic()
        largest = self.problem(chunks).largest
        found: list[Timed] = []

        def plan(where: Session, wanted: Demand) -> Schedule:
            where.tell("growing trees by time")
            on = costs(where.network, where is not self.session, largest)
            found.append(timed(where.network, wanted, on, opening, where.hurry))
            return found[-1].schedule

        made = self._within_time(chunks, plan)
        if made is None:
            return self._open(begun)
        halves = found * 2 if self.composed and len(found) == 1 else found
        took, least = 1e6 * sum(half.seconds for half in halves), 1e6 * sum(half.least for half in halves)
        how = f"trees by time: {took:.4g} us, of at least {least:.4g} us for these chunks"
        return self._of_parts(made, f"{how}{' in two halves' if self.composed else ''}", begun)

    def _of_parts(self, made: Result, how: str, begun: float) -> Outcome:
        return Outcome(FOUND, made, how, None, time.monotonic() - begun, composed=self.composed)

    def _within_time(self, chunks: int, plan: Callable[[Session, Demand], Schedule]) -> Result | None:
        """The result of a method that always finds a schedule, given time, for each of the demands."""
        self.least_steps()
        try:
            return self._planned(chunks, plan)
        except TimeUp:
            return None

    def _alike(self, chunks: int) -> bool:
        """Whether a schedule of the second half, inverted, is one of the first."""
        wanted = self.problem(chunks)
        return wanted.reduced == wanted.spread and self._inverse.network is self.session.network

    def _planned(self, chunks: int, plan: Callable[[Session, Demand], Schedule]) -> Result:
        made = [plan(where, wanted) for where, wanted in self.parts(chunks)[-1:]]
        if self.composed:
            made.insert(0, made[0] if self._alike(chunks) else plan(*self.parts(chunks)[0]))
        return self._result(chunks, made)

    def frontier(self, k: int, most_steps: int) -> Iterator[Point]:
        """Yields the Pareto-optimal points in ascending order of steps (001 algorithm 1).

        Candidates with common factors of C and R are not left out: twice the chunks in twice the rounds may be possible
        even if the half is not.

        Args:
            k: Schedules with R <= S + k.
            most_steps: The largest number of steps, if the bandwidth optimum is not reached before.
        """
        least = self.least_steps()
        overall, reachable = self.any_steps(), self.any_steps_searched()
        best: Fraction | None = None
        begun = time.monotonic()
        for steps in range(least, most_steps + 1):
            if self.session.left <= 0:
                return
            bound = self.in_steps(steps)
            stopped: KeyboardInterrupt | None = None
            tried = Candidates(self.candidates(steps, k, bound.rounds, best))
            try:
                self._decide(tried, steps)
            except KeyboardInterrupt as problem:
                stopped = problem  # points found until then count
            undecided = tuple((chunks, rounds) for rounds, chunks in tried.undecided)
            if undecided:
                self.undecided[steps] = undecided
            if tried.found is not None and tried.found.result is not None:
                chunks, _, rounds = tried.found.result.cost
                best = Fraction(rounds, chunks)
                begun, seconds = time.monotonic(), time.monotonic() - begun
                yield Point(
                    chunks, steps, rounds, replace(tried.found, seconds=seconds), bound.rounds, bound.proof,
                    optimal=best == bound.rounds, latency=steps == self.any_algorithm_steps(),
                    bandwidth=best == overall.rounds, open=undecided,
                )  # fmt: skip
            if stopped is not None:
                raise stopped
            if best is not None and best <= reachable.rounds:
                return

    def _decide(self, tried: Candidates, steps: int) -> None:
        """Searches for the first candidate that is possible.

        All candidates get a little time until one is found. Then the undecided ones get more, the easiest first.
        """
        for slices in _SLICES:
            for candidate in tried.candidates if slices is _SLICES[0] else tried.undecided[::-1]:
                if self.session.left > 0 and tried.matters(candidate):
                    rounds, chunks = candidate
                    tried.note(candidate, self._within(slices * self.session.left, chunks, steps, rounds))

    def _within(self, seconds: float, chunks: int, steps: int, rounds: int) -> Outcome:
        """Decides an instance in a fraction of the remaining time, so that a hard one does not take all of it."""
        with self._until(time.monotonic() + seconds):
            return self.solve(chunks, steps, rounds, prove=False)

    @contextmanager
    def _until(self, time_up: float) -> Generator[None, None, None]:
        deadline = self.session.deadline
        for s in (self.session, self._inverse):
            s.deadline = min(deadline, time_up)
        try:
            yield
        finally:
            for s in (self.session, self._inverse):
                s.deadline = deadline

    def reserving(self, part: float) -> AbstractContextManager[None]:
        """Reserves a part of the remaining time for work after the context."""
        return self._until(time.monotonic() + (1 - part) * self.session.left)

    def candidates(self, steps: int, k: int, bound: Fraction, below: Fraction | None) -> list[tuple[int, int]]:
        """Returns (R, C) with S <= R <= S + k and bound <= R/C < below, in ascending order of R/C, then of C."""
        found: list[tuple[int, int]] = []
        if bound <= 0 or bound >= UNREACHABLE:
            return found
        for rounds in range(steps, steps + k + 1):
            for chunks in range(self.unit, int(rounds / bound) + 1, self.unit):
                if below is None or Fraction(rounds, chunks) < below:
                    found.append((rounds, chunks))
        return sorted(found, key=lambda c: (Fraction(*c), c[1]))

    def goes_on(self, outcome: Outcome, chunks: int) -> bool:
        """Returns whether more rounds are worth a search: there are too few, or where switches multicast, maybe."""
        maybe = any(multicasts(where.network, wanted) for where, wanted in self.parts(chunks))
        return outcome.status == IMPOSSIBLE or (maybe and outcome.status == OPEN and self.session.left > 0)

    def least_rounds(self, chunks: int, steps: int) -> Outcome:
        """Finds the fewest rounds for these chunks and steps, counting up from the bound."""
        if steps < self.least_steps():
            return self.solve(chunks, steps, max(steps, 1))
        rounds = max(math.ceil(self.in_steps(steps).rounds * chunks), steps)
        while True:
            outcome = self.solve(chunks, steps, rounds)
            if not self.goes_on(outcome, chunks):
                return outcome
            rounds += 1
