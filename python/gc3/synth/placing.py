"""Assigns the sends of trees to steps: a chunk is sent on as soon as it has arrived and there is room.

The same overlaps the phases of a schedule: `overlapped` keeps its sends and their order for each chunk, and lets each
take place as early as it can.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gc3 import _core
from gc3.synth.demand import Demand
from gc3.synth.limits import TimeUp
from gc3.synth.network import Network
from gc3.synth.schedule import Schedule, Send

_ENDLESS = 1e9  # seconds
_MOST_ROUNDS = 64  # of a step


@dataclass(frozen=True, slots=True)
class Hop:
    """A send.

    Attributes:
        chunk: The chunk.
        edge: The edge of the network.
        turn: Among sends that compete, those with a lower number are preferred.
        before: The sends that bring what it sends; they are listed earlier.
    """

    chunk: int
    edge: int
    turn: int
    before: tuple[int, ...]


def placed(network: Network, hops: Sequence[Hop], seconds: float, rounds: int | None = None) -> Schedule:
    """Returns the schedule of sends.

    Every step has `rounds`. None: one round, or a few if bandwidths are fractions, of which a single round would lose
    a part.

    Raises:
        TimeUp: The time limit was reached.
    """
    rounds = _rounds_of_a_step(network, hops) if rounds is None else rounds
    listed = [(hop.edge, hop.turn, hop.before) for hop in hops]
    steps = _core.place_hops(listed, network.bounds_of, network.carried(rounds), min(seconds, _ENDLESS))
    if steps is None:
        raise TimeUp
    sends: list[tuple[int, Send]] = [
        (step, (hop.chunk, *network.edges[hop.edge])) for step, hop in zip(steps, hops, strict=True)
    ]
    return Schedule.of([rounds] * (max(steps, default=-1) + 1), sends)


def overlapped(network: Network, demand: Demand, schedule: Schedule, seconds: float) -> Schedule:
    """Returns a schedule with the same sends, in which no phase waits for the end of another.

    A send of a chunk still follows all of the chunk's arrivals at its sender that it follows in the given schedule, so
    it sends the same data. The chunks of each piece of the demand are preferred in their order.

    Raises:
        TimeUp: The time limit was reached.
    """
    arrived: dict[tuple[int, int], list[int]] = {}  # (chunk, rank) -> hops
    hops: list[Hop] = []
    for sends in schedule.steps:
        first = len(hops)
        for chunk, src, dst in sends:
            turn = chunk - demand.first[demand.piece_of[chunk]]
            hops.append(Hop(chunk, network.edge_index[src, dst], turn, tuple(arrived.get((chunk, src), ()))))
        for i, (chunk, _, dst) in enumerate(sends, first):
            arrived.setdefault((chunk, dst), []).append(i)
    return placed(network, hops, seconds)


def _rounds_of_a_step(network: Network, hops: Sequence[Hop]) -> int:
    """The rounds of each step with which the schedule is expected to have the fewest rounds."""
    if network.unit == 1:
        return 1
    load = [0] * len(network.bounds)
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
