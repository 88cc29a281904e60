"""The search for schedules whose programs need little scratch memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

from gc3.collectives import Collective
from gc3.support.words import counted
from gc3.synth import check, flows, formula, in_switch, scratch
from gc3.synth.answer import FOUND, IMPOSSIBLE, OPEN, UNDECIDED, Answer
from gc3.synth.demand import Demand, Holding
from gc3.synth.limits import TimeUp, slices
from gc3.synth.network import Network
from gc3.synth.outcome import Outcome
from gc3.synth.schedule import padded, pruned, stretched
from gc3.synth.search import Session
from gc3.synth.task import Task
from gc3.synth.timed import Costs

_FIRST_SLICE = 2.0  # seconds for a formula before a smaller group is tried
_SECONDS = 60.0  # for the exact search of one instance, without a time limit
_MOST_ROUNDS = 2  # times the fewest without the limit
_MORE_ROUNDS = 8


class LimitedTask(Task):
    """A collective on a network, for programs that need at most a part of S as scratch on any rank.

    A result that needs more is compiled with places that are used again; then its sends are rearranged, or, for given
    steps and rounds, chunks that are held for others are limited in the formula or the integer program.
    """

    def __init__(
        self,
        session: Session,
        collective: str | Collective,
        root: int = 0,
        *,
        most_scratch: Fraction,
        compiling: Mapping[str, Any] | None = None,
    ) -> None:
        """Takes the collective and the limit.

        Args:
            session: The solvers, and the time limit.
            collective: A name, or a custom one.
            root: Of a rooted collective.
            most_scratch: The largest part of S.
            compiling: The options of `gc3.compile` with which programs are to keep the limit.

        Raises:
            gc3.UserError: The collective is unknown, or has another number of ranks than the network.
        """
        super().__init__(session, collective, root)
        self.most_scratch = most_scratch
        self.compiling = dict(compiling or {})
        self.least_scratch: Fraction | None = None  # of the results that did not fit

    def unmoved(self) -> Task:
        """Returns the same task with sends that are not moved to save rounds: see `placing.placed`."""
        session = replace(self.session, moving=False)
        return LimitedTask(
            session, self.collective, self.root, most_scratch=self.most_scratch, compiling=self.compiling
        )

    @property
    def too_much(self) -> str:
        """Why there is no result."""
        least = "" if self.least_scratch is None else f": the least that was found needs {self.least_scratch} of S"
        return f"no schedule was found that needs at most {self.most_scratch} of S as scratch{least}"

    def solve(self, chunks: int, steps: int, rounds: int, *, prove: bool = True) -> Outcome:
        """Decides an instance: see `Task.solve`. "Impossible" may refer to the limit, and then says so."""
        found = super().solve(chunks, steps, rounds, prove=prove)
        fitting = self._fitted(found, rearranging=False)
        if fitting.result is not None or found.result is None or len(self.parts(chunks)) > 1:
            return fitting
        begun = time.monotonic()
        where, wanted = self.parts(chunks)[0]
        problem = found.result.problem
        holding = Holding(int(self.most_scratch * problem.largest), problem.reduced is not None)
        answer = _solved(where, wanted, steps, rounds, holding)
        if answer.status == IMPOSSIBLE:
            return Outcome(IMPOSSIBLE, None, answer.how, None, found.seconds + time.monotonic() - begun)
        if answer.schedule is None:
            return fitting
        made = replace(self._result(chunks, [answer.schedule]), lanes=found.result.lanes)
        return self._fitted(replace(found, result=made, how=answer.how), rearranging=False)

    def least_rounds(self, chunks: int, steps: int) -> Outcome:
        """Finds the fewest rounds: see `Task.least_rounds`. With many more than without the limit it gives up."""
        fewest = Task(self.session, self.collective, self.root).least_rounds(chunks, steps)
        if fewest.result is None:
            return fewest
        least = fewest.result.schedule.total_rounds
        for rounds in range(least, _MOST_ROUNDS * least + _MORE_ROUNDS + 1):
            outcome = self.solve(chunks, steps, rounds)
            if not self.goes_on(outcome, chunks):
                return outcome
        return replace(fewest, status=OPEN, result=None, how=self.too_much)

    def pipelined(self, chunks: int) -> Outcome:
        """Finds a schedule over trees: see `Task.pipelined`."""
        return self._fitted(super().pipelined(chunks))

    def hierarchical(self, chunks: int, *, overlapped: bool = False) -> Outcome:
        """Composes a schedule: see `Task.hierarchical`."""
        return self._fitted(super().hierarchical(chunks, overlapped=overlapped))

    def timed(self, chunks: int, costs: Callable[[Network, bool, int], Costs], opening: float = 0.0) -> Outcome:
        """Finds a schedule for a size: see `Task.timed`."""
        return self._fitted(super().timed(chunks, costs, opening))

    def _fitted(self, outcome: Outcome, *, rearranging: bool = True) -> Outcome:
        if outcome.result is None:
            return outcome
        self.session.tell("limiting scratch memory")
        begun = time.monotonic()
        try:
            found = scratch.fitted(
                outcome.result, self.most_scratch, self.compiling, self.session.hurry, rearranging=rearranging
            )
        except TimeUp:
            return replace(outcome, status=OPEN, result=None, how="the time limit was reached")
        seconds = outcome.seconds + time.monotonic() - begun
        if found.result is None:
            self.least_scratch = min(found.least, self.least_scratch or found.least)
            return replace(outcome, status=OPEN, result=None, how=self.too_much, fewest=None, seconds=seconds)
        how = outcome.how
        if found.rearranged:
            how = f"{how.partition(':')[0]}, rearranged for {self.most_scratch} of S as scratch"
        return replace(outcome, result=found.result, how=how, seconds=seconds)


def task_within(
    session: Session,
    collective: str | Collective,
    root: int = 0,
    *,
    most_scratch: Fraction | None,
    compiling: Mapping[str, Any] | None = None,
) -> Task:
    """Returns the task of a collective, limited if there is a limit; takes the arguments of `LimitedTask`."""
    if most_scratch is None:
        return Task(session, collective, root)
    return LimitedTask(session, collective, root, most_scratch=most_scratch, compiling=compiling)


def _solved(session: Session, demand: Demand, steps: int, rounds: int, holding: Holding) -> Answer:
    """Decides whether there is a schedule in which ranks hold no more than that for others."""
    held = f"with at most {counted(holding.room, 'chunk')} in the scratch of a rank"
    answer = (_routed if demand.routes else _copied)(session, demand, steps, rounds, holding)
    if answer.schedule is None and in_switch.applies(session.network, demand):
        answer = UNDECIDED
    if answer.schedule is None:
        return replace(answer, how=f"{held}, {answer.how}")
    schedule = pruned(answer.schedule, demand)
    schedule = padded(stretched(schedule, session.network, steps) or schedule, steps, rounds)
    check.check(session.network, demand, schedule)
    return Answer(FOUND, schedule, f"{answer.how}, {held}")


def _routed(session: Session, demand: Demand, steps: int, rounds: int, holding: Holding) -> Answer:
    end = time.monotonic() + min(session.left, _SECONDS)
    for group in session.group(demand).descending():
        left = end - time.monotonic()
        if left <= 0:
            break
        session.tell(f"flow over {steps} steps within scratch, {group.order} symmetries")
        status, schedule = flows.routed(session.solvers, session.network, demand, steps, group, left, holding.room)
        if schedule is not None and schedule.total_rounds <= rounds:
            return Answer(FOUND, schedule, f"flow over {steps} steps")
        if group.order == 1 and status == "infeasible":
            return Answer(IMPOSSIBLE, None, f"no {steps} steps suffice, by branch and bound")
        if group.order == 1 and status == "optimal" and schedule is not None:
            fewest = schedule.total_rounds
            return Answer(IMPOSSIBLE, None, f"the fewest rounds are {fewest}, by branch and bound")
    return Answer(OPEN, None, "the time limit was reached")


def _copied(session: Session, demand: Demand, steps: int, rounds: int, holding: Holding) -> Answer:
    end = time.monotonic() + min(session.left, _SECONDS)
    for seconds in slices(_FIRST_SLICE):
        for group in session.group(demand).descending():
            left = min(seconds, end - time.monotonic())
            if left <= 0:
                return Answer(OPEN, None, "the time limit was reached")
            session.tell(f"formula within scratch, {group.order} symmetries")
            status, schedule = formula.decide(
                session.solvers,
                session.network,
                demand,
                None,
                group,
                left,
                steps=steps,
                total=rounds,
                holding=holding,
            )
            if schedule is not None:
                return Answer(FOUND, schedule, f"satisfiability with {group.order} symmetries")
            if status == "unsat" and group.order == 1:
                return Answer(IMPOSSIBLE, None, "the formula has no model")
    raise AssertionError("the slices never end")
