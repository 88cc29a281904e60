"""Assigns the sends of trees to steps: a chunk is sent on as soon as it has arrived and there is room.

The same overlaps the phases of a schedule: `overlapped` keeps its sends and their order for each chunk, and lets each
take place as early as it can.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from gc3 import _core
from gc3.synth.demand import Demand
from gc3.synth.groups import additions, groups
from gc3.synth.limits import ENDLESS, TimeUp
from gc3.synth.network import Capacity, Network
from gc3.synth.problem import Item
from gc3.synth.schedule import Schedule, Send

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
    if rounds is None:
        rounds = rounds_of_a_step(hops, network.bounds_of, [chunks for _, chunks in network.bounds])
    steps = steps_of(hops, network.bounds_of, network.carried(rounds), seconds)
    sends: list[tuple[int, Send]] = [
        (step, (hop.chunk, *network.edges[hop.edge])) for step, hop in zip(steps, hops, strict=True)
    ]
    return Schedule.of([rounds] * (max(steps, default=-1) + 1), sends)


def steps_of(hops: Sequence[Hop], bounds_of: Sequence[Sequence[int]], room: Sequence[int], seconds: float) -> list[int]:
    """Returns the step of each send.

    Args:
        hops: The sends.
        bounds_of: For each edge the bounds that a send over it counts towards, several times if it stands for images.
        room: What each bound carries in a step.
        seconds: The time limit.

    Raises:
        TimeUp: The time limit was reached.
    """
    listed = [(hop.edge, hop.turn, hop.before) for hop in hops]
    steps = _core.place_hops(listed, bounds_of, room, min(seconds, ENDLESS))
    if steps is None:
        raise TimeUp
    return steps


def overlapped(
    network: Network, demand: Demand, contents: Sequence[Item], schedule: Schedule, seconds: float
) -> Schedule:
    """Returns a schedule with the same sends, in which no phase waits for the end of another.

    A send of a chunk still follows all of the chunk's arrivals at its sender that it follows in the given schedule, so
    it sends the same data. The chunks of each piece of the demand are preferred in their order. Sends that a switch
    carries as one stay together.

    Raises:
        TimeUp: The time limit was reached.
    """
    arrived: dict[tuple[int, int], list[int]] = {}  # (chunk, rank) -> hops
    hops: list[Hop] = []
    carried: list[Sequence[Send]] = []  # by each hop
    used: list[Sequence[int]] = list(network.bounds_of)
    number: dict[tuple[bool, tuple[int, ...]], int] = {(False, (e,)): e for e in range(len(used))}
    for sends, adding in zip(schedule.steps, additions(contents, schedule), strict=True):
        first = len(hops)
        for group in groups(network, sends, adding):
            chunk, _, _ = group[0]
            adds = len(group) > 1 and group[0] in adding
            way = adds, tuple(network.edge_index[src, dst] for _, src, dst in group)
            if way not in number:
                number[way] = len(used)
                used.append(network.load(way[1], adds=adds))
            turn = chunk - demand.first[demand.piece_of[chunk]]
            before = dict.fromkeys(i for _, src, _ in group for i in arrived.get((chunk, src), ()))
            hops.append(Hop(chunk, number[way], turn, tuple(before)))
            carried.append(group)
        for i, group in enumerate(carried[first:], first):
            for chunk, _, dst in group:
                arrived.setdefault((chunk, dst), []).append(i)
    rounds = rounds_of_a_step(hops, used, [chunks for _, chunks in network.bounds])
    steps = steps_of(hops, used, network.carried(rounds), seconds)
    listed = ((step, send) for step, group in zip(steps, carried, strict=True) for send in group)
    return Schedule.of([rounds] * (max(steps, default=-1) + 1), listed)


def rounds_of_a_step(hops: Sequence[Hop], bounds_of: Sequence[Sequence[int]], bandwidths: Sequence[Capacity]) -> int:
    """Returns the rounds of each step with which the schedule is expected to have the fewest rounds.

    Args:
        hops: The sends.
        bounds_of: See `steps_of`.
        bandwidths: The chunks that each bound carries in a round.
    """
    # What a switch carries as one loads several bounds, or one several times.
    least = 1
    for edge in {hop.edge for hop in hops}:
        for b, count in Counter(bounds_of[edge]).items():
            least = max(least, math.ceil(count / Fraction(bandwidths[b])))
    if least == 1 and all(isinstance(chunks, int) for chunks in bandwidths):
        return 1
    load = [0] * len(bandwidths)
    depths: list[int] = []
    for hop in hops:
        depths.append(1 + max((depths[b] for b in hop.before), default=0))
        for b in bounds_of[hop.edge]:
            load[b] += 1
    depth = max(depths, default=0)

    def total(rounds: int) -> float:
        room = [int(chunks * rounds) for chunks in bandwidths]
        if rounds < least or not all(room):
            return math.inf
        return (max(-(-used // most) for used, most in zip(load, room, strict=True)) + depth - 1) * rounds

    return min(range(1, max(_MOST_ROUNDS, least) + 1), key=total)
