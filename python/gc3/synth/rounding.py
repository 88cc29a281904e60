"""Flows in whole numbers where there is no symmetry: a fractional flow, rounded, and mended chunk by chunk.

A program in whole numbers of all sources is too much for a solver. What makes it work without are prices, the dual of
the bound on the rounds: flows that keep to cheap ways leave room where it is scarce.

1. With rounds fixed, the cheapest fractional flow. It is a vertex, and so whole in most places.
2. Its fractional parts are cycles. Along each the flow is pushed one way or the other, whichever exceeds less, until it
   is whole: what enters and leaves a rank stays as it was.
3. While an edge carries too much, a chunk of it takes another way (`detours`).
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from gc3.synth import detours, relaxation
from gc3.synth.demand import Demand
from gc3.synth.detours import Place
from gc3.synth.network import Network
from gc3.synth.solvers import Solvers
from gc3.synth.symmetry import trivial

Amounts: TypeAlias = "dict[int, dict[Place, int]]"  # of each source, what it sends over an edge in a step

_NOISE = 0.1  # of prices, so that a program has one solution and no ties
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
    flows: dict[int, dict[Place, float]] = {}
    for (source, e, s), variable in layout.sent.items():
        flows.setdefault(source, {})[e, s] = float(result.values[variable])
    work = _Rounding(network, demand, rounds, flows)
    for source in chance.sample(sorted(flows), len(flows)):
        work.make_whole(source)
    limit = {(e, s): int(n * count) for e, n in enumerate(network.capacity) for s, count in enumerate(rounds)}
    search = detours.Detours(network, limit, price, {source: work.amounts(source) for source in flows})
    sent = search.run(deadline, chance, tell)
    if sent is None:
        return None
    return {source: {place: n for place, n in amounts.items() if place[0] >= 0} for source, amounts in sent.items()}


class _Rounding:
    """Flows of all sources that become whole, and the room they leave."""

    def __init__(
        self, network: Network, demand: Demand, rounds: Sequence[int], flows: dict[int, dict[Place, float]]
    ) -> None:
        self._network = network
        self._steps = len(rounds)
        self._wanted: dict[int, dict[int, int]] = {}
        for piece in demand.pieces:
            for target in piece.targets:
                wanted = self._wanted.setdefault(piece.source, {})
                wanted[target] = wanted.get(target, 0) + piece.count
        self._flows = flows
        self._limit = np.array([[float(int(n * count)) for count in rounds] for n in network.capacity])
        self._load = np.zeros(self._limit.shape)
        for amounts in flows.values():
            for place, amount in amounts.items():
                self._load[place] += amount

    def make_whole(self, source: int) -> None:
        """Pushes the flow of a source along cycles of places where it is not whole, until it is."""
        values = self._with_waiting(source)
        at: dict[Place, set[Place]] = {}  # by rank and step, the places that are not whole yet
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

    def _excess(self, place: Place, more: float) -> float:
        return max(float(self._load[place] - self._limit[place]) + more + _NEAR, 0.0) ** 2

    def _with_waiting(self, source: int) -> dict[Place, float]:
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

    def _ends(self, place: Place) -> tuple[Place, Place]:
        index, s = place
        src, dst = self._network.edges[index] if index >= 0 else (-1 - index, -1 - index)
        return (src, s), (dst, s + 1)

    def _cycle(self, at: dict[Place, set[Place]]) -> list[tuple[Place, int]]:
        """A cycle of places, each with the direction it is passed in: wherever one ends, another goes on."""
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
        """What a source that has been made whole sends, and what of it waits."""
        return {place: round(amount) for place, amount in self._with_waiting(source).items() if amount}


def _clean(value: float) -> float:
    return float(round(value)) if abs(value - round(value)) < _WHOLE else value
