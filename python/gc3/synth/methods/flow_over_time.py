"""Schedules for demands of single targets: integral flows over time, decomposed into the paths of chunks."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from gc3.support.words import counted
from gc3.synth.bounds import cuts, flow_relaxation
from gc3.synth.bounds.flow_relaxation import Layout
from gc3.synth.problem import FIRST_SLICE, FOUND, IMPOSSIBLE
from gc3.synth.problem.demand import Demand, Send
from gc3.synth.problem.network import Network
from gc3.synth.problem.schedule import Schedule, reversed_in_time, stretched
from gc3.synth.problem.symmetry import Group
from gc3.synth.session import TIME_OVER, Answer, Instance, Method
from gc3.synth.solvers import LinearResult, Solvers

MANY = 5000  # whole amounts that are not computed all at once
_HALF, _WHOLE = 0.5, 1e-6


class MaximumFlow(Method):
    """Maximum flow over single rounds, which decides for one source or one target."""

    cost = 20

    def applies(self, instance: Instance) -> bool:
        """Returns whether all chunks begin or end on one rank, and a step for each round is allowed."""
        divisible = instance.demand.routes and instance.network.divisible
        return divisible and instance.demand.one_sided and instance.steps >= instance.rounds

    def decide(self, instance: Instance) -> Answer:
        """Returns the schedule, or that there is none: any of this many rounds can be cut into single ones."""
        schedule = one_sided_schedule(instance.network, instance.demand, [1] * instance.rounds)
        if schedule is None:
            return Answer(IMPOSSIBLE, None, f"the maximum flow over {instance.rounds} rounds falls short")
        return Answer(FOUND, schedule, "maximum flow over time")


class WholeFlow(Method):
    """Flow over time in whole numbers, by branch and bound: with symmetries, and without, which decides."""

    cost = 55

    def applies(self, instance: Instance) -> bool:
        """Returns whether no chunk is copied."""
        return instance.demand.routes

    def decide(self, instance: Instance) -> Answer:
        """Returns the schedule, that there is none, or that the time is over."""
        session, network, demand, steps = instance.session, instance.network, instance.demand, instance.steps
        for count in sorted({min(steps, cuts.least_steps(network, demand)), steps}):
            for group in instance.group.descending():
                if session.left <= 0:
                    return TIME_OVER
                session.tell(f"flow over {counted(count, 'step')}, {group.order} symmetries")
                last = group.order == 1 and count == steps
                large = session.size(demand, count) > MANY
                seconds = session.left if last else min(session.left, FIRST_SLICE * (50 if large else 5))
                status, schedule = routed(session.solvers, network, demand, count, group, seconds)
                if schedule is not None and schedule.total_rounds <= instance.rounds:
                    if count == steps or stretched(schedule, network, steps) is not None:
                        return Answer(FOUND, schedule, f"flow over {counted(count, 'step')}")
                elif status == "optimal" and schedule is not None:
                    if proof := instance.below(session.in_steps(demand, steps)):
                        return proof
                    if last:
                        fewest = schedule.total_rounds
                        return Answer(IMPOSSIBLE, None, f"the fewest rounds are {fewest}, by branch and bound")
        return TIME_OVER


def one_sided_schedule(network: Network, demand: Demand, rounds: Sequence[int]) -> Schedule | None:
    """Returns a schedule with given rounds by maximum flow, if every bound is of one edge; None if there is none."""
    moving = [p for p in demand.pieces if p.targets and p.count]
    if len({p.source for p in moving}) > 1:
        turned = one_sided_schedule(network.reversed, cuts.reverse(demand), rounds[::-1])
        return None if turned is None else reversed_in_time(turned)
    if not moving:
        return Schedule.of(rounds, ())
    wanted: dict[int, int] = {}
    for piece in moving:
        for target in piece.targets:
            wanted[target] = wanted.get(target, 0) + piece.count
    graph, source, sink, arcs = cuts.over_time(network, {moving[0].source: sum(wanted.values())}, wanted, rounds)
    if graph.run(source, sink) < sum(wanted.values()):
        return None
    sent = {place: graph.left[arc ^ 1] for place, arc in arcs.items() if graph.left[arc ^ 1]}
    return Schedule.of(rounds, ways(network, demand, moving[0].source, sent, len(rounds)))


def routed(
    solvers: Solvers,
    network: Network,
    demand: Demand,
    steps: int,
    group: Group,
    seconds: float,
    room: int | None = None,
) -> tuple[str, Schedule | None]:
    """Returns the schedule of the fewest rounds that is invariant under a group.

    With `room`, no rank holds more chunks than that for others in a step.

    Returns:
        "optimal" with that schedule, "feasible" with one that may be improved, "infeasible", or "unknown".
    """
    turn = len({p.targets for p in demand.pieces if p.targets}) < len({p.source for p in demand.pieces if p.targets})
    if turn and group.order == 1:
        status, found = _routed(solvers, network.reversed, cuts.reverse(demand), steps, _turned(group), seconds, room)
        return status, None if found is None else reversed_in_time(found)
    return _routed(solvers, network, demand, steps, group, seconds, room)


def _turned(group: Group) -> Group:
    return Group(group.network.reversed, group.elements)


def _routed(
    solvers: Solvers,
    network: Network,
    demand: Demand,
    steps: int,
    group: Group,
    seconds: float,
    room: int | None,
) -> tuple[str, Schedule | None]:
    def program(*, straight: bool = False) -> Layout:
        layout = flow_relaxation.routing(network, demand, steps, group, whole=True, straight=straight)
        if room is not None:
            _add_room(layout, network, demand, steps, group, room)
        return layout

    layout = program()
    if len(layout.sent) > MANY:
        layout = program(straight=True)
        result = _in_two(solvers, layout, seconds)
    else:
        result = solvers.linear(layout.program, seconds, whole_cost=True)
    if result.values is None:
        return result.status, None
    values = result.values
    rounds = [round(values[v]) for v in layout.rounds]
    sent: dict[int, dict[tuple[int, int], int]] = {}
    for (source, e, s), variable in layout.sent.items():
        amount = round(values[variable])
        if amount:
            sent.setdefault(source, {})[e, s] = amount
    found: list[tuple[int, Send]] = []
    for source, amounts in sent.items():
        found += group.spread(demand, ways(network, demand, source, amounts, steps))
    schedule = Schedule.of(rounds, found)
    return ("optimal" if result.status == "optimal" else "feasible"), schedule


def _add_room(layout: Layout, network: Network, demand: Demand, steps: int, group: Group, room: int) -> None:
    """Limits the chunks that a rank holds in a step for others: those that have come by then and not left before it.

    Which of the chunks of a source a rank keeps for itself is free (`ways` keeps the first it can): as
    many as it wants, and no more than leave enough for the sends of the next step.
    """
    program = layout.program
    held: dict[tuple[int, int], list[tuple[int, float]]] = {}  # by rank and step, of all sources that are first images
    for source, wanted in demand.given.items():
        if group.home[source][0] != source:
            continue
        for v in range(network.ranks):
            if v == source:
                continue
            come: list[tuple[int, float]] = []
            own = -1
            for s in range(steps):
                come = come + [
                    (layout.sent[source, e, s], 1.0) for e in network.incoming[v] if (source, e, s) in layout.sent
                ]
                left, leaves = (
                    [
                        (layout.sent[source, e, t], -1.0)
                        for e in network.outgoing[v]
                        for t in range(end)
                        if (source, e, t) in layout.sent
                    ]
                    for end in (s, s + 2)
                )
                terms = come + left
                if wanted.get(v, 0):
                    before, own = own, program.variable(high=float(wanted[v]))
                    program.row([*come, *leaves, (own, -1.0)], 0.0, math.inf)
                    if before >= 0:
                        program.row([(own, 1.0), (before, -1.0)], 0.0, math.inf)
                    terms = [*terms, (own, -1.0)]
                held.setdefault((v, s), []).extend(terms)
    back = [group.elements[i] for i in group.inverse]
    for v in sorted({home for home, _ in group.home}):
        for s in range(steps):
            total: dict[int, float] = {}
            for moved in back:
                for variable, factor in held.get((moved[v], s), ()):
                    total[variable] = total.get(variable, 0.0) + factor
            program.row(total.items(), -math.inf, float(room))


def _in_two(solvers: Solvers, layout: Layout, seconds: float) -> LinearResult:
    """Fixes whole rounds first, then whole amounts: keeps those that are already whole, as most are.

    Finds a solution of a large program, but proves nothing: if none is found, the result is "unknown".
    """
    program = layout.program
    nothing = LinearResult("unknown", None, None, None)
    begun = time.monotonic()
    for variable in layout.sent.values():
        program.integral[variable] = False
    result = solvers.linear(program, seconds, whole_cost=True)
    if result.values is None:
        return nothing
    for variable in layout.rounds:
        program.low[variable] = program.high[variable] = round(result.values[variable])
    for variable in layout.sent.values():
        program.integral[variable] = True
        amount = float(result.values[variable])
        if amount > _HALF and abs(amount - round(amount)) < _WHOLE:
            program.low[variable] = program.high[variable] = round(amount)
    result = solvers.linear(program, seconds - (time.monotonic() - begun), whole_cost=True)
    return nothing if result.values is None else replace(result, status="unknown")


def ways(
    network: Network, demand: Demand, source: int, sent: Mapping[tuple[int, int], int], steps: int
) -> list[tuple[int, Send]]:
    """Decomposes a flow: from the amounts sent over edges in steps to the sends of chunks."""
    at: list[list[int]] = [[] for _ in range(network.ranks)]
    for i, piece in enumerate(demand.pieces):
        if piece.source == source:
            for target in piece.targets:
                at[target] += range(demand.first[i], demand.first[i + 1])
    found: list[tuple[int, Send]] = []
    # Backwards from the targets: any of a rank's chunks may be the one that came over an edge in the step.
    for s in range(steps - 1, -1, -1):
        back: list[tuple[int, int]] = []
        for e, (u, w) in enumerate(network.edges):
            for _ in range(sent.get((e, s), 0)):
                chunk = at[w].pop()
                found.append((s, (chunk, u, w)))
                back.append((u, chunk))
        for u, chunk in back:
            at[u].append(chunk)
    return found
