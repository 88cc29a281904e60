"""Mending flows in whole numbers that exceed what edges carry: chunks that are too many take detours.

A chunk of the source that suffers least leaves a place that is too full (an edge in a step) for the cheapest other way.
That way may undo what the source sends elsewhere, and it may lead over places that are full, which then are too full
and give up a chunk of another source: a chain, which ends where there is room. A place costs its price, more where it
is full, and more with every time that it was too full, so that chains do not run in circles (as in negotiated
congestion, by which circuits are routed).
"""

from __future__ import annotations

import heapq
import random
import time
from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from gc3.synth.network import Network

Place: TypeAlias = "tuple[int, int]"  # edge and step; of what waits, minus one minus the rank, and step
_Vertex: TypeAlias = "tuple[int, int]"  # a rank after so many steps
_Move: TypeAlias = "tuple[Place, int]"  # one chunk more there, or one less

_PRICE = 0.02  # of the mean place, where a chunk too many costs 1
_AGAIN = 0.3  # for every time that a place was too full
_PATIENCE = 3000  # detours without less excess


class Detours:
    """The flows of all sources, and how full that makes each place."""

    def __init__(
        self,
        network: Network,
        limit: Mapping[Place, int],
        price: npt.NDArray[np.float64],
        flows: dict[int, dict[Place, int]],
    ) -> None:
        """Takes what there is.

        Args:
            network: Every bound is of one edge.
            limit: What each edge carries in each step.
            price: Of each edge in each step, 1 in the mean.
            flows: What each source sends and what of it waits; it is changed.
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
        """Returns flows that keep to the limits; None: none were found.

        Args:
            deadline: When to give up, by `time.monotonic`.
            chance: For choices.
            tell: Is told how much is too much.
        """
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
        """Moves one chunk away from a place, along the cheapest of all ways; returns the places that it changes."""
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
        """The cheapest way of a source's chunk from one vertex to another that does not use a place."""
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
        """Where a chunk can go: onward by sending or waiting, back by undoing what the source does."""
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
