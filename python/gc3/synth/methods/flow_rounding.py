"""Flows in whole numbers without symmetry: a fractional flow, rounded, and corrected chunk by chunk.

An integer program for all sources is too large for a solver. Prices, the dual of the bound on the rounds, help without
it: flows on cheap paths leave room where it is scarce.

1. Compute the cheapest fractional flow with fixed rounds. It is a vertex, and so whole in most places.
2. Its fractional parts are cycles. Push the flow along each cycle in the direction with less excess until it is whole:
   the flow into and out of each rank stays the same.
3. While an edge carries too much, one of its chunks takes a detour.

A place is an edge in a step. While a place is too full, the chunk with the cheapest alternative leaves it. The
alternative may undo a send of the same source elsewhere. It may also use full places, which are then too full and move
a chunk of another source: this chain ends where there is room. The price of a place rises when it is full, and with
every time that it was too full, so that chains do not cycle (as in negotiated congestion for routing circuits).
"""

from __future__ import annotations

import heapq
import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from gc3.synth.bounds import flow_relaxation
from gc3.synth.methods import flow_over_time
from gc3.synth.problem import FOUND
from gc3.synth.problem.demand import Demand
from gc3.synth.problem.network import Network
from gc3.synth.problem.schedule import Schedule
from gc3.synth.problem.symmetry import trivial
from gc3.synth.session import Answer, Instance, Method

Amounts: TypeAlias = "dict[int, dict[Place, int]]"  # of each source, the amount sent over an edge in a step

_NOISE = 0.1  # of prices, so that a program has one solution and no ties
_WHOLE = 1e-6
_NEAR = 0.3  # an edge below its limit by less than this is avoided
_PRICE = 0.02  # relative to the mean place, where an excess chunk costs 1
_AGAIN = 0.3  # for every time that a place was too full
_PATIENCE = 3000  # detours without a smaller excess


class RoundedFlow(Method):
    """A fractional flow, rounded, for integer programs that are too large and have no symmetry."""

    cost = 45

    def applies(self, instance: Instance) -> bool:
        """Returns whether no chunk is copied, there is no symmetry, and the program is large."""
        return instance.demand.routes and instance.group.order == 1 and instance.size > flow_over_time.MANY

    def decide(self, instance: Instance) -> Answer | None:
        """Returns the schedule if one is found, or that the bound is higher."""
        session, network, demand, steps = instance.session, instance.network, instance.demand, instance.steps
        if proof := instance.below(session.in_steps(demand, steps)):
            return proof
        suggested = session.suggested(demand, steps)
        if suggested is None or not network.point_to_point:
            return None
        fixed = split(suggested.rounds, instance.rounds)
        session.tell(f"cheapest flow in rounds {', '.join(map(str, fixed))}")
        sent = self._rounded(instance, fixed, suggested.price)
        if sent is None:
            return None
        ways = [w for k, a in sent.items() for w in flow_over_time.ways(network, demand, k, a, steps)]
        return Answer(FOUND, Schedule.of(fixed, ways), "a fractional flow, rounded")

    @staticmethod
    def _rounded(instance: Instance, rounds: Sequence[int], prices: npt.NDArray[np.float64]) -> Amounts | None:
        """The sends of each source, in whole chunks and within the rounds of each step; None if nothing was found.

        The price of each edge in each step is as in a proof that there are no fewer rounds.
        """
        session, network, demand = instance.session, instance.network, instance.demand
        chance = random.Random(session.seed)  # noqa: S311 - nothing secret
        price = prices / max(float(prices.mean()), _WHOLE)
        layout = flow_relaxation.routing(network, demand, len(rounds), trivial(network), rounds=rounds)
        for (_, e, s), variable in layout.sent.items():
            layout.program.cost[variable] = price[e, s] + _NOISE * chance.random()
        layout.program.method = "vertex"
        result = session.solvers.linear(layout.program, session.left)
        if result.values is None:
            return None
        flows: dict[int, dict[Place, float]] = {}
        for (source, e, s), variable in layout.sent.items():
            flows.setdefault(source, {})[e, s] = float(result.values[variable])
        work = _Rounding(network, demand, rounds, flows)
        for source in chance.sample(sorted(flows), len(flows)):
            work.make_whole(source)
        limit = {(e, s): int(n * count) for e, n in enumerate(network.capacity) for s, count in enumerate(rounds)}
        search = Detours(network, limit, price, {source: work.amounts(source) for source in flows})
        sent = search.run(session.deadline, chance, session.tell)
        if sent is None:
            return None
        return {source: {place: n for place, n in amounts.items() if place[0] >= 0} for source, amounts in sent.items()}


def split(fractional: Sequence[float], total: int) -> list[int]:
    """Returns whole rounds half way between those of a fractional schedule and equal ones.

    A solver's choice is barely possible; equal rounds leave chunks the most ways to wait.

    >>> split([7.0, 11.6, 14.8, 11.2, 7.0], 52)
    [9, 11, 12, 11, 9]
    """
    steps = len(fractional)
    exact = [(f * total / sum(fractional) + total / steps) / 2 for f in fractional]
    found = [max(int(f), 1) for f in exact]
    for s in sorted(range(steps), key=lambda s: found[s] - exact[s])[: max(total - sum(found), 0)]:
        found[s] += 1
    return found


class _Rounding:
    """Flows of all sources while they are made whole, and the remaining capacity."""

    def __init__(
        self, network: Network, demand: Demand, rounds: Sequence[int], flows: dict[int, dict[Place, float]]
    ) -> None:
        self._network = network
        self._steps = len(rounds)
        self._wanted = demand.given
        self._flows = flows
        self._limit = np.array([[float(int(n * count)) for count in rounds] for n in network.capacity])
        self._load = np.zeros(self._limit.shape)
        for amounts in flows.values():
            for place, amount in amounts.items():
                self._load[place] += amount

    def make_whole(self, source: int) -> None:
        """Pushes the flow of a source along cycles of fractional places until it is whole."""
        values = self._with_waiting(source)
        at: dict[Place, set[Place]] = {}  # by rank and step, the places that are still fractional
        for place, amount in values.items():
            if amount != round(amount):
                for end in self._ends(place):
                    at.setdefault(end, set()).add(place)
        while at:
            cycle = self._cycle(at)
            net: dict[Place, int] = {}
            for place, sign in cycle:
                if place[0] >= 0:
                    net[place] = net.get(place, 0) + sign
            amount = min(self._pushes(values, cycle, net), key=lambda p: p[0])[1]
            for place, sign in cycle:
                values[place] = _clean(values[place] + sign * amount)
                if values[place] == round(values[place]):
                    for end in self._ends(place):
                        at[end].discard(place)
                        if not at[end]:
                            del at[end]
            for place, sign in net.items():
                self._load[place] += sign * amount
        self._flows[source] = {place: amount for place, amount in values.items() if place[0] >= 0}

    def _pushes(
        self, values: dict[Place, float], cycle: list[tuple[Place, int]], net: dict[Place, int]
    ) -> list[tuple[float, float]]:
        """The two directions to push: the change of the excess and the largest amount of each."""
        found: list[tuple[float, float]] = []
        for way in (1, -1):
            amount = min(
                math.ceil(values[p]) - values[p] if sign == way else values[p] - math.floor(values[p])
                for p, sign in cycle
            )
            worse = sum(
                self._excess(place, way * amount * sign) - self._excess(place, 0.0) for place, sign in net.items()
            )
            found.append((worse, way * amount))
        return found

    def _excess(self, place: Place, more: float) -> float:
        return max(float(self._load[place] - self._limit[place]) + more + _NEAR, 0.0) ** 2

    def _with_waiting(self, source: int) -> dict[Place, float]:
        """A flow with the amounts that wait on each rank in each step."""
        amounts = self._flows[source]
        values = {place: _clean(amount) for place, amount in amounts.items()}
        there = [0.0] * self._network.ranks
        there[source] = float(sum(self._wanted[source].values()))
        for s in range(self._steps):
            arrived = [0.0] * self._network.ranks
            for (e, step), amount in amounts.items():
                if step == s:
                    src, dst = self._network.edges[e]
                    there[src] -= amount
                    arrived[dst] += amount
            for rank, amount in enumerate(there):
                values[-1 - rank, s] = _clean(amount)
            there = [a + b for a, b in zip(there, arrived, strict=True)]
        return values

    def _ends(self, place: Place) -> tuple[Place, Place]:
        index, s = place
        src, dst = self._network.edges[index] if index >= 0 else (-1 - index, -1 - index)
        return (src, s), (dst, s + 1)

    def _cycle(self, at: dict[Place, set[Place]]) -> list[tuple[Place, int]]:
        """A cycle of places, each with its direction: where one ends, the next begins."""
        here = next(iter(at))
        path: list[tuple[Place, int]] = []
        passed = {here: 0}
        last: Place | None = None
        while True:
            last = max(p for p in at[here] if p != last)
            tail, head = self._ends(last)
            path.append((last, 1 if tail == here else -1))
            here = head if tail == here else tail
            if here in passed:
                return path[passed[here] :]
            passed[here] = len(path)

    def amounts(self, source: int) -> dict[Place, int]:
        """The sends of a source that has been made whole, and the amounts that wait."""
        return {place: round(amount) for place, amount in self._with_waiting(source).items() if amount}


def _clean(value: float) -> float:
    return float(round(value)) if abs(value - round(value)) < _WHOLE else value


Place: TypeAlias = "tuple[int, int]"  # edge and step; for waiting chunks, minus one minus the rank, and step
_Vertex: TypeAlias = "tuple[int, int]"  # a rank after this many steps
_Move: TypeAlias = "tuple[Place, int]"  # one chunk more at the place, or one less


class Detours:
    """The flows of all sources, and the load of each place."""

    def __init__(
        self,
        network: Network,
        limit: Mapping[Place, int],
        price: npt.NDArray[np.float64],
        flows: dict[int, dict[Place, int]],
    ) -> None:
        """Takes the initial flows.

        Args:
            network: Every bound is of one edge.
            limit: The capacity of each edge in each step.
            price: The price of each edge in each step, 1 in the mean.
            flows: The chunks of each source that are sent and that wait; it is changed.
        """
        self._network = network
        self._flows = flows
        self._cost = {place: _PRICE * float(price[place]) for place in limit}
        self._above = {place: -most for place, most in limit.items()}  # the load above the limit
        self._users: dict[Place, set[int]] = {place: set() for place in limit}
        self._steps = price.shape[1]
        for source, amounts in flows.items():
            for place, amount in amounts.items():
                if place[0] >= 0:
                    self._above[place] += amount
                    self._users[place].add(source)
        self._penalty = dict.fromkeys(limit, 0.0)

    def run(
        self, deadline: float, chance: random.Random, tell: Callable[[str], None]
    ) -> dict[int, dict[Place, int]] | None:
        """Returns flows within the limits; None if none were found until the deadline."""
        full = sorted(place for place, above in self._above.items() if above > 0)
        least, patience = sum(self._above[place] for place in full) + 1, _PATIENCE
        while full:
            excess = sum(self._above[place] for place in full)
            patience = _PATIENCE if excess < least else patience - 1
            if patience == 0 or time.monotonic() > deadline:
                return None
            if excess < least:
                least = excess
                tell(f"rounding flows, {excess} chunks too many")
            place = chance.choice(full)
            self._penalty[place] += _AGAIN
            touched = self._detour(place, chance)
            full = sorted(p for p in {*full, *touched} if self._above[p] > 0)
        return self._flows

    def _detour(self, place: Place, chance: random.Random) -> list[Place]:
        """Moves one chunk away from a place, along the cheapest alternative; returns the places that it changes."""
        edge, step = place
        src, dst = self._network.edges[edge]
        best: tuple[float, list[_Move], int] | None = None
        users = sorted(self._users[place])
        for source in chance.sample(users, len(users)):
            found = self._way(source, (src, step), (dst, step + 1), place, best[0] if best else float("inf"))
            if found is not None:
                best = (*found, source)
        if best is None:
            return []
        _, moves, source = best
        amounts = self._flows[source]
        for at, change in ((place, -1), *moves):
            amounts[at] = amounts.get(at, 0) + change
            if at[0] >= 0:
                self._above[at] += change
                (self._users[at].add if amounts[at] else self._users[at].discard)(source)
        return [at for at, _ in moves if at[0] >= 0]

    def _way(
        self, source: int, begin: _Vertex, end: _Vertex, closed: Place, below: float
    ) -> tuple[float, list[_Move]] | None:
        """The cheapest path of a source's chunk from one vertex to another that does not use a place."""
        least: dict[_Vertex, float] = {begin: 0.0}
        came: dict[_Vertex, tuple[_Vertex, _Move]] = {}
        todo: list[tuple[float, _Vertex]] = [(0.0, begin)]
        while todo:
            cost, here = heapq.heappop(todo)
            if cost >= below:
                return None
            if here == end:
                moves: list[_Move] = []
                while here != begin:
                    here, move = came[here]
                    moves.append(move)
                return cost, moves
            if cost > least[here]:
                continue
            for there, move, more in self._onward(source, here):
                if move[0] != closed and cost + more < least.get(there, below):
                    least[there] = cost + more
                    came[there] = here, move
                    heapq.heappush(todo, (cost + more, there))
        return None

    def _onward(self, source: int, here: _Vertex) -> list[tuple[_Vertex, _Move, float]]:
        """The moves of a chunk: forwards by sending or waiting, backwards by undoing a send of the source."""
        rank, step = here
        network, amounts = self._network, self._flows[source]
        found: list[tuple[_Vertex, _Move, float]] = []
        if step < self._steps:
            found.append(((rank, step + 1), ((-1 - rank, step), 1), 0.0))
            for e in network.outgoing[rank]:
                place = e, step
                above = self._above[place]
                cost = self._cost[place] + (1.0 + above + self._penalty[place] if above >= 0 else 0.0)
                found.append(((network.edges[e][1], step + 1), (place, 1), cost))
        if step > 0:
            if amounts.get((-1 - rank, step - 1)):
                found.append(((rank, step - 1), ((-1 - rank, step - 1), -1), 0.0))
            for e in network.incoming[rank]:
                if amounts.get((e, step - 1)):
                    found.append(((network.edges[e][0], step - 1), ((e, step - 1), -1), 0.0))
        return found
