"""Corrects flows in whole numbers that exceed the capacity of edges: excess chunks take detours.

A place is an edge in a step. While a place is too full, the chunk with the cheapest alternative leaves it. The
alternative may undo a send of the same source elsewhere. It may also use full places, which are then too full and move
a chunk of another source: this chain ends where there is room. The price of a place rises when it is full, and with
every time that it was too full, so that chains do not cycle (as in negotiated congestion for routing circuits).
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

Place: TypeAlias = "tuple[int, int]"  # edge and step; for waiting chunks, minus one minus the rank, and step
_Vertex: TypeAlias = "tuple[int, int]"  # a rank after this many steps
_Move: TypeAlias = "tuple[Place, int]"  # one chunk more at the place, or one less

_PRICE = 0.02  # relative to the mean place, where an excess chunk costs 1
_AGAIN = 0.3  # for every time that a place was too full
_PATIENCE = 3000  # detours without a smaller excess


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
        """Returns flows within the limits; None if none were found.

        Args:
            deadline: The time limit, by `time.monotonic`.
            chance: The source of random choices.
            tell: Called with the excess.
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
