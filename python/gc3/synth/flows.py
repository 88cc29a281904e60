"""Schedules for demands of single targets: integral flows over time, decomposed into the paths of chunks."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from gc3.synth import cuts, relaxation
from gc3.synth.demand import Demand
from gc3.synth.maxflow import Flow
from gc3.synth.network import Network
from gc3.synth.relaxation import Layout
from gc3.synth.schedule import Schedule, Send
from gc3.synth.solvers import LinearResult, Solvers
from gc3.synth.symmetry import Group

MANY = 5000  # whole amounts that are not computed all at once
_HALF, _WHOLE = 0.5, 1e-6


def one_sided(demand: Demand) -> bool:
    """Returns whether all chunks begin on one rank, or all go to one rank."""
    moving = [p for p in demand.pieces if p.targets and p.count]
    return len({p.source for p in moving}) <= 1 or len({p.targets for p in moving}) <= 1


def reverse_schedule(schedule: Schedule) -> Schedule:
    """Returns the schedule reversed in time, with the direction of every send reversed."""
    return Schedule(
        schedule.rounds[::-1],
        tuple(tuple(sorted((c, dst, src) for c, src, dst in sends)) for sends in schedule.steps[::-1]),
    )


def fewest_single_rounds(network: Network, demand: Demand, target: int, most: int) -> int:
    """Returns the least T for which T steps of one round bring any one target all its data; most + 1 if there is none.

    On a divisible network, a schedule of T rounds can be cut into T such steps, however many steps it has. So this is a
    lower bound on the rounds of the whole demand.
    """
    supply: dict[int, int] = {}
    for piece in demand.pieces:
        if target in piece.targets:
            supply[piece.source] = supply.get(piece.source, 0) + piece.count
    needed = sum(supply.values())
    if needed == 0:
        return 0
    least = max((network.distance[source][target] for source in supply), default=0)
    room = sum(network.capacity[e] for e in network.incoming[target])
    least = max(least, math.ceil(needed / Fraction(room)) if room else least)
    for steps in range(least, most + 1):
        graph, source, sink, _ = _over_time(network, supply, {target: needed}, [1] * steps)
        if graph.run(source, sink) == needed:
            return steps
    return most + 1


def one_sided_schedule(network: Network, demand: Demand, rounds: Sequence[int]) -> Schedule | None:
    """Returns a schedule with given rounds by maximum flow; None if there is none.

    Args:
        network: Every bound is of one edge.
        demand: All chunks begin on one rank, or all go to one rank.
        rounds: The rounds of each step.
    """
    moving = [p for p in demand.pieces if p.targets and p.count]
    if len({p.source for p in moving}) > 1:
        turned = one_sided_schedule(network.reversed, cuts.reverse(demand), rounds[::-1])
        return None if turned is None else reverse_schedule(turned)
    if not moving:
        return Schedule.of(rounds, ())
    wanted: dict[int, int] = {}
    for piece in moving:
        for target in piece.targets:
            wanted[target] = wanted.get(target, 0) + piece.count
    graph, source, sink, arcs = _over_time(network, {moving[0].source: sum(wanted.values())}, wanted, rounds)
    if graph.run(source, sink) < sum(wanted.values()):
        return None
    sent = {place: graph.left[arc ^ 1] for place, arc in arcs.items() if graph.left[arc ^ 1]}
    return Schedule.of(rounds, ways(network, demand, moving[0].source, sent, len(rounds)))


def _over_time(
    network: Network, supply: Mapping[int, int], wanted: Mapping[int, int], rounds: Sequence[int]
) -> tuple[Flow, int, int, dict[tuple[int, int], int]]:
    """The network over time, a source for the supply, a sink for the demand, and the arcs of edges."""
    ranks, steps = network.ranks, len(rounds)
    graph = Flow(ranks * (steps + 1))
    source, sink = graph.vertex(), graph.vertex()
    distance = network.distance
    early = [min(distance[v][r] for v in supply) for r in range(ranks)]
    late = [min(distance[r][t] for t in wanted) for r in range(ranks)]
    for rank, count in supply.items():
        graph.arc(source, rank, count)
    for rank, count in wanted.items():
        graph.arc(steps * ranks + rank, sink, count)
    arcs: dict[tuple[int, int], int] = {}
    for s in range(steps):
        for r in range(ranks):
            if early[r] <= s and late[r] < steps - s:
                graph.arc(s * ranks + r, (s + 1) * ranks + r, 1 << 60)
        for e, (u, w) in enumerate(network.edges):
            if early[u] <= s and late[w] < steps - s:
                arcs[e, s] = graph.arc(s * ranks + u, (s + 1) * ranks + w, int(network.capacity[e] * rounds[s]))
    return graph, source, sink, arcs


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
        return status, None if found is None else reverse_schedule(found)
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
    layout = relaxation.routing(network, demand, steps, group, whole=True, room=room)
    if len(layout.sent) > MANY:
        layout = relaxation.routing(network, demand, steps, group, whole=True, straight=True, room=room)
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
