"""The search for schedules whose programs need little scratch memory, because few chunks are in it at once.

A rank that forwards a chunk which it neither has before nor needs after keeps it in scratch, from the step in which it
arrives to the last one in which it is sent; so does one with the partial sum of a reduction that is not its own. A
program may use such a place again (`scratch` of `gc3.compile`), so it needs as many as are in use in the same step.

A schedule is rearranged by placing its sends again, one chunk after the other: each hop as early as it can be, then as
late as those that depend on it allow, so that the chunk is held briefly; and all of them later if some rank is full.
"""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from gc3.collectives import Collective
from gc3.runtime import scratch
from gc3.support.words import counted
from gc3.synth import result
from gc3.synth.methods import flow_over_time, satisfiability
from gc3.synth.methods.timed_trees import Costs
from gc3.synth.problem import FOUND, IMPOSSIBLE, OPEN, TimeUp
from gc3.synth.problem.demand import Demand, Holding, Problem, Send
from gc3.synth.problem.network import Network
from gc3.synth.problem.schedule import Hop, Schedule, multicasts
from gc3.synth.result import Outcome, Result
from gc3.synth.session import TIME_OVER, UNDECIDED, Answer, Instance, Session
from gc3.synth.task import Task

_SECONDS = 60.0  # for the exact search of one instance, without a time limit
_MOST_TIMES = 2  # times the fewest without the limit
_MORE_ROUNDS = 8
_MOST_ROUNDS = 64  # of a step
_TRIES = 4  # rearranged schedules, with fewer and fewer chunks


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
        """Returns the same task with sends that are not moved to save rounds: see `schedule.placed`."""
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
        for rounds in range(least, _MOST_TIMES * least + _MORE_ROUNDS + 1):
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
            found = fitted(
                outcome.result, self.most_scratch, self.compiling, self.session.hurry, rearranging=rearranging
            )
        except TimeUp:
            return replace(outcome, status=OPEN, result=None, how=TIME_OVER.how)
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
    instance = Instance(session.quick(_SECONDS), demand, steps, rounds)
    answer = _routed(instance, holding.room) if demand.routes else satisfiability.decided(instance, holding)
    if answer.schedule is None:
        answer = UNDECIDED if multicasts(session.network, demand) else answer
        return replace(answer, how=f"{held}, {answer.how}")
    return Answer(FOUND, session.finished(demand, answer.schedule, steps, rounds), f"{answer.how}, {held}")


def _routed(instance: Instance, room: int) -> Answer:
    session, steps = instance.session, instance.steps
    for group in instance.group.descending():
        if session.left <= 0:
            break
        session.tell(f"flow over {steps} steps within scratch, {group.order} symmetries")
        status, schedule = flow_over_time.routed(
            session.solvers, instance.network, instance.demand, steps, group, session.left, room
        )
        if schedule is not None and schedule.total_rounds <= instance.rounds:
            return Answer(FOUND, schedule, f"flow over {steps} steps")
        if group.order == 1 and status == "infeasible":
            return Answer(IMPOSSIBLE, None, f"no {steps} steps suffice, by branch and bound")
        if group.order == 1 and status == "optimal" and schedule is not None:
            fewest = schedule.total_rounds
            return Answer(IMPOSSIBLE, None, f"the fewest rounds are {fewest}, by branch and bound")
    return TIME_OVER


@dataclass(frozen=True, slots=True)
class Fitted:
    """A result within a limit."""

    result: Result | None  # the result; None if none was found
    least: Fraction  # the least part of S that was found to be needed
    rearranged: bool = False  # whether its sends were placed again


def fitted(
    made: Result, limit: Fraction, compiling: Mapping[str, Any], hurry: Callable[[], None], *, rearranging: bool
) -> Fitted:
    """Returns a result with the sends of another one whose program needs at most a part of S as scratch.

    If `rearranging` helps, sends may take place in other steps, also in more of them.
    """
    least = scratch.share(made.program(**compiling).core)
    if least <= limit:
        return Fitted(made, least)
    most = int(limit * made.problem.largest)
    again = replace(made, scratch=most)
    least = min(least, needed := scratch.share(again.program(**compiling).core))
    if needed <= limit:
        return Fitted(again, least)
    room = most
    for _ in range(_TRIES if rearranging and most else 0):
        schedule = rearranged(made.network, made.problem, made.schedule, room, hurry)
        if schedule is None:
            break
        other = replace(result.whole(made.network, made.problem, schedule), lanes=made.lanes, scratch=most)
        least = min(least, needed := scratch.share(other.program(**compiling).core))
        if needed <= limit:
            return Fitted(other, least, rearranged=True)
        # Messages of several chunks need adjacent places, which may leave gaps.
        room -= max(int(needed * made.problem.largest) - most, 1)
        if room < 1:
            break
    schedule = rearranged(made.network, made.problem, made.schedule, 1, hurry) if rearranging else None
    if schedule is not None:  # so few that a limit for these chunks can be no lower, as far as this search knows
        other = replace(result.whole(made.network, made.problem, schedule), lanes=made.lanes, scratch=0)
        least = min(least, scratch.share(other.program(**compiling).core))
    return Fitted(None, least)


def keeps(problem: Problem) -> Callable[[int, int], bool]:
    """Returns the function that says of a chunk and a rank whether the rank keeps it in scratch when it arrives."""
    contents = problem.contents
    # Programs of built-in collectives but the all-to-all are written in place: see `gc3.lang.stepwise`.
    in_place = problem.layout is None and problem.name != "alltoall"
    works_on_input = {rank for item in problem.items for rank in item.after} if in_place else set[int]()

    def keeps_it(chunk: int, rank: int) -> bool:
        item = contents[chunk]
        if rank in item.after:
            return False
        return rank not in item.before or (len(item.before) > 1 and rank not in works_on_input)

    return keeps_it


def rearranged(
    network: Network, problem: Problem, schedule: Schedule, room: int, hurry: Callable[[], None]
) -> Schedule | None:
    """Returns a schedule with the same sends in which no rank holds more than `room` chunks in scratch in a step.

    Returns:
        None if a rank must hold a chunk and there is no room for any.
    """
    hops: list[Hop] = []
    chunks: dict[int, list[int]] = {}
    arrived: dict[tuple[int, int], list[int]] = {}
    for sends in schedule.steps:
        first = len(hops)
        for chunk, src, dst in sends:
            chunks.setdefault(chunk, []).append(len(hops))
            hops.append(Hop(chunk, network.edge_index[src, dst], 0, tuple(arrived.get((chunk, src), ()))))
        for i, (chunk, _, dst) in enumerate(sends, first):
            arrived.setdefault((chunk, dst), []).append(i)
    rounds = _rounds_of_a_step(hops, network)
    places = _Places(network, network.carried(rounds), room, keeps(problem))
    found: list[tuple[int, Send]] = []
    for chunk, listed in chunks.items():  # in the order of their first sends
        steps = places.place(chunk, [hops[i] for i in listed], listed, hurry)
        if steps is None:
            return None
        found += ((step, (chunk, *network.edges[hops[i].edge])) for step, i in zip(steps, listed, strict=True))
    return Schedule.of([rounds] * (max((step for step, _ in found), default=-1) + 1), found)


def _rounds_of_a_step(hops: Sequence[Hop], network: Network) -> int:
    """The rounds of each step with which the schedule is expected to have the fewest rounds."""
    bandwidths = [chunks for _, chunks in network.bounds]
    if all(isinstance(chunks, int) for chunks in bandwidths):
        return 1
    load = [0] * len(bandwidths)
    depths: list[int] = []
    for hop in hops:
        depths.append(1 + max((depths[b] for b in hop.before), default=0))
        for b in network.bounds_of[hop.edge]:
            load[b] += 1
    depth = max(depths, default=0)

    def total(rounds: int) -> float:
        room = network.carried(rounds)
        if not all(room):
            return math.inf
        return (max(-(-used // most) for used, most in zip(load, room, strict=True)) + depth - 1) * rounds

    return min(range(1, _MOST_ROUNDS + 1), key=total)


class _Places:
    """What is used of the bounds of the network and of the scratch of ranks, in each step."""

    def __init__(
        self, network: Network, carried: Sequence[int], room: int, keeps_it: Callable[[int, int], bool]
    ) -> None:
        self.network = network
        self.carried = carried
        self.room = room
        self.keeps_it = keeps_it
        self.used: defaultdict[int, Counter[int]] = defaultdict(Counter[int])  # by step and bound
        self.held: defaultdict[int, Counter[int]] = defaultdict(Counter[int])  # by step and rank
        self.end = 0  # behind the last step that is used

    def place(
        self, chunk: int, hops: Sequence[Hop], numbers: Sequence[int], hurry: Callable[[], None]
    ) -> list[int] | None:
        """Returns the step of each send of a chunk, and uses them; None if there is no room however late they are."""
        at = {number: i for i, number in enumerate(numbers)}
        before = [[at[b] for b in hop.before] for hop in hops]
        begin = 0
        while begin <= self.end:
            hurry()
            steps = self._soon(hops, before, begin)
            first = min(steps)
            self._delay(hops, before, steps)
            holding = list(self._holding(chunk, hops, before, steps))
            if all(self.held[step][rank] < self.room for step, rank in holding):
                for step, rank in holding:
                    self.held[step][rank] += 1
                self._use(hops, steps, 1)
                self.end = max(self.end, *steps) + 1
                return steps
            begin = first + 1
        return None

    def _soon(self, hops: Sequence[Hop], before: Sequence[Sequence[int]], begin: int) -> list[int]:
        """The earliest step of each, from `begin` on."""
        steps: list[int] = []
        for hop, needs in zip(hops, before, strict=True):
            step = max((steps[b] + 1 for b in needs), default=begin)
            while not self._free(hop, step):
                step += 1
            steps.append(step)
            self._use([hop], [step], 1)
        self._use(hops, steps, -1)
        return steps

    def _delay(self, hops: Sequence[Hop], before: Sequence[Sequence[int]], steps: list[int]) -> None:
        """Moves each to the latest step before those that need it."""
        self._use(hops, steps, 1)
        until = [0] * len(hops)  # the earliest of those that need it
        for i in range(len(hops) - 1, -1, -1):
            self._use([hops[i]], [steps[i]], -1)
            for step in range(until[i] - 1, steps[i], -1):
                if self._free(hops[i], step):
                    steps[i] = step
                    break
            self._use([hops[i]], [steps[i]], 1)
            for b in before[i]:
                until[b] = min(until[b] or steps[i], steps[i])
        self._use(hops, steps, -1)

    def _free(self, hop: Hop, step: int) -> bool:
        return all(self.used[step][b] < self.carried[b] for b in self.network.bounds_of[hop.edge])

    def _use(self, hops: Sequence[Hop], steps: Sequence[int], count: int) -> None:
        for hop, step in zip(hops, steps, strict=True):
            for b in self.network.bounds_of[hop.edge]:
                self.used[step][b] += count

    def _holding(
        self, chunk: int, hops: Sequence[Hop], before: Sequence[Sequence[int]], steps: Sequence[int]
    ) -> Iterator[tuple[int, int]]:
        """The steps and ranks in which the chunk takes a place in scratch: from its first arrival to its last send."""
        arrival: dict[int, int] = {}
        for hop, step in zip(hops, steps, strict=True):
            dst = self.network.edges[hop.edge][1]
            arrival[dst] = min(arrival.get(dst, step), step)
        last: dict[int, int] = {}
        for hop, needs, step in zip(hops, before, steps, strict=True):
            src = self.network.edges[hop.edge][0]
            if needs and self.keeps_it(chunk, src):
                last[src] = max(last.get(src, step), step)
        for rank, end in last.items():
            yield from ((step, rank) for step in range(arrival[rank], end + 1))
