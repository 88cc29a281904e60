"""Flows in whole numbers where there is no symmetry: a fractional flow, rounded, and mended a few sources at a time.

A program in whole numbers of all sources is too much for a solver, one of a few sources is not. What makes it work are
prices, the dual of the bound on the rounds: flows that keep to cheap ways leave room where it is scarce.

1. With rounds fixed, the cheapest fractional flow. It is a vertex, and so whole in most places.
2. Its fractional parts are cycles. Along each the flow is pushed one way or the other, whichever exceeds less, until it
   is whole: what enters and leaves a rank stays as it was.
3. While an edge carries too much, a few sources that use it are routed again around all others, by branch and bound.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from gc3.synth import relaxation
from gc3.synth.demand import Demand
from gc3.synth.network import Network
from gc3.synth.solvers import Linear, Solvers
from gc3.synth.symmetry import trivial

_Place: TypeAlias = "tuple[int, int]"  # edge and step; of what waits, minus one minus the rank, and step
Amounts: TypeAlias = "dict[int, dict[_Place, int]]"  # of each source, what it sends over an edge in a step

_FEWEST, _MOST = 3, 8  # sources that are routed again at once
_SECONDS = 1.5  # for these
_PATIENCE = 60  # attempts without less excess
_NOISE = 0.1  # of prices, so that a program has one solution and no ties
_CHEAP = 0.01  # prices, as part of the cost of a chunk too many
_WHOLE = 1e-6
_NEAR = 0.3  # below its limit by less, an edge is avoided


def split(fractional: Sequence[float], total: int) -> list[int]:
    """Returns whole rounds half way between those of a fractional schedule and equal ones.

    A solver's choice is at the margin of what is possible; equal rounds leave chunks the most ways to wait.

    >>> split([7.0, 11.6, 14.8, 11.2, 7.0], 52)
    [9, 11, 12, 11, 9]
    """
    steps = len(fractional)
    exact = [(f * total / sum(fractional) + total / steps) / 2 for f in fractional]
    found = [max(int(f), 1) for f in exact]
    for s in sorted(range(steps), key=lambda s: found[s] - exact[s])[: max(total - sum(found), 0)]:
        found[s] += 1
    return found


def rounded(
    solvers: Solvers,
    network: Network,
    demand: Demand,
    rounds: Sequence[int],
    prices: npt.NDArray[np.float64],
    seconds: float,
    seed: int,
    tell: Callable[[str], None],
) -> Amounts | None:
    """Returns what each source sends, in whole chunks and within the rounds; None: nothing was found.

    Args:
        solvers: For linear programs.
        network: Every bound is of one edge.
        demand: Every piece has one target at most.
        rounds: The rounds of each step.
        prices: Of each edge in each step, as in a proof that there are no fewer rounds.
        seconds: How long it may take.
        seed: Of random choices.
        tell: Is told how much is too much.
    """
    deadline = time.monotonic() + seconds
    chance = random.Random(seed)  # noqa: S311 - nothing secret
    price = prices / max(float(prices.mean()), _WHOLE)
    layout = relaxation.routing(network, demand, len(rounds), trivial(network), rounds=rounds)
    for (_, e, s), variable in layout.sent.items():
        layout.program.cost[variable] = price[e, s] + _NOISE * chance.random()
    layout.program.method = "vertex"
    result = solvers.linear(layout.program, seconds)
    if result.values is None:
        return None
    flows: dict[int, dict[_Place, float]] = {}
    for (source, e, s), variable in layout.sent.items():
        flows.setdefault(source, {})[e, s] = float(result.values[variable])
    work = _Rounding(network, demand, rounds, flows)
    for source in chance.sample(sorted(flows), len(flows)):
        work.make_whole(source)
    return work.mend(solvers, price, deadline, chance, tell)


class _Rounding:
    """Flows of all sources that become whole, and the room they leave."""

    def __init__(
        self, network: Network, demand: Demand, rounds: Sequence[int], flows: dict[int, dict[_Place, float]]
    ) -> None:
        self._network = network
        self._steps = len(rounds)
        self._wanted: dict[int, dict[int, int]] = {}
        for piece in demand.pieces:
            for target in piece.targets:
                wanted = self._wanted.setdefault(piece.source, {})
                wanted[target] = wanted.get(target, 0) + piece.count
        self._flows = flows
        self._limit = np.outer(network.capacity, rounds).astype(float)
        self._load = self._loads(flows, flows)

    def make_whole(self, source: int) -> None:
        """Pushes the flow of a source along cycles of places where it is not whole, until it is."""
        values = self._with_waiting(source)
        at: dict[_Place, set[_Place]] = {}  # by rank and step, the places that are not whole yet
        for place, amount in values.items():
            if amount != round(amount):
                for end in self._ends(place):
                    at.setdefault(end, set()).add(place)
        while at:
            cycle = self._cycle(at)
            net: dict[_Place, int] = {}
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
        self, values: dict[_Place, float], cycle: list[tuple[_Place, int]], net: dict[_Place, int]
    ) -> list[tuple[float, float]]:
        """The two ways to push, as far as it goes: what each adds to the excess, and the amount."""
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

    def _excess(self, place: _Place, more: float) -> float:
        return max(float(self._load[place] - self._limit[place]) + more + _NEAR, 0.0) ** 2

    def _with_waiting(self, source: int) -> dict[_Place, float]:
        """A flow with what waits on each rank in each step."""
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

    def _ends(self, place: _Place) -> tuple[_Place, _Place]:
        index, s = place
        src, dst = self._network.edges[index] if index >= 0 else (-1 - index, -1 - index)
        return (src, s), (dst, s + 1)

    def _cycle(self, at: dict[_Place, set[_Place]]) -> list[tuple[_Place, int]]:
        """A cycle of places, each with the direction it is passed in: wherever one ends, another goes on."""
        here = next(iter(at))
        path: list[tuple[_Place, int]] = []
        passed = {here: 0}
        last: _Place | None = None
        while True:
            last = max(p for p in at[here] if p != last)
            tail, head = self._ends(last)
            path.append((last, 1 if tail == here else -1))
            here = head if tail == here else tail
            if here in passed:
                return path[passed[here] :]
            passed[here] = len(path)

    def mend(
        self,
        solvers: Solvers,
        price: npt.NDArray[np.float64],
        deadline: float,
        chance: random.Random,
        tell: Callable[[str], None],
    ) -> Amounts | None:
        """Routes a few sources again and again, until nothing is too much."""
        sources = sorted(self._flows)
        whole: Amounts = {k: {p: round(a) for p, a in self._flows[k].items() if round(a)} for k in sources}
        load = self._loads(whole, sources)
        patience, together = _PATIENCE, _MOST
        while (excess := np.maximum(load - self._limit, 0.0)).any():
            tell(f"rounding flows, {round(excess.sum())} chunks too many")
            if time.monotonic() > deadline or patience == 0:
                return None
            patience -= 1
            chosen = self._some(whole, excess, together, chance)
            others = load - self._loads(whole, chosen)
            again = self._again(solvers, chosen, others, price, min(_SECONDS, deadline - time.monotonic()), chance)
            together = max(together - 2, _FEWEST) if again is None else min(together + 1, _MOST)
            if again is None:
                continue
            now = others + self._loads(again, chosen)
            after = np.maximum(now - self._limit, 0.0).sum()
            if after <= excess.sum():
                patience = _PATIENCE if after < excess.sum() else patience
                whole.update(again)
                load = now
        return whole

    def _some(self, whole: Amounts, excess: npt.NDArray[np.float64], together: int, chance: random.Random) -> list[int]:
        """A few sources, those more likely that use a place with an excess."""
        worst = chance.choice([(int(e), int(s)) for e, s in zip(*np.nonzero(excess), strict=True)])
        weights = {
            k: 0.2 + sum(a * float(excess[p]) for p, a in amounts.items()) + (2.0 if worst in amounts else 0.0)
            for k, amounts in whole.items()
        }
        # The largest of u ** (1 / w) are a sample without replacement by weight.
        return sorted(sorted(weights, key=lambda k: -(chance.random() ** (1 / weights[k])))[:together])

    def _loads(self, flows: Mapping[int, Mapping[_Place, float]], sources: Iterable[int]) -> npt.NDArray[np.float64]:
        load = np.zeros(self._limit.shape)
        for source in sources:
            for place, amount in flows[source].items():
                load[place] += amount
        return load

    def _again(
        self,
        solvers: Solvers,
        sources: Sequence[int],
        others: npt.NDArray[np.float64],
        price: npt.NDArray[np.float64],
        seconds: float,
        chance: random.Random,
    ) -> Amounts | None:
        """Flows of a few sources that exceed the room that all others leave as little as can be."""
        program = Linear()
        sent: dict[int, dict[_Place, int]] = {}
        users: dict[_Place, list[int]] = {}
        for source in sources:
            sent[source] = relaxation.flow(
                program, self._network, source, self._wanted[source], self._steps, whole=True
            )
            for place, variable in sent[source].items():
                program.cost[variable] = _CHEAP * (price[place] + _NOISE * chance.random())
                users.setdefault(place, []).append(variable)
        for place, variables in users.items():
            too_many = program.variable(1.0)
            room = max(float(self._limit[place] - others[place]), 0.0)
            program.row([*((v, 1.0) for v in variables), (too_many, -1.0)], -math.inf, room)
        values = solvers.linear(program, seconds, whole_cost=True).values
        if values is None:
            return None
        return {k: {p: n for p, v in places.items() if (n := round(values[v]))} for k, places in sent.items()}


def _clean(value: float) -> float:
    return float(round(value)) if abs(value - round(value)) < _WHOLE else value
