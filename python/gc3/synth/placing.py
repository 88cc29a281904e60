"""Assigns the sends of trees to steps: a chunk is sent on as soon as it has arrived and there is room.

The same overlaps the phases of a schedule: `overlapped` keeps its sends and their order for each chunk, and lets each
take place as early as it can.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gc3 import _core
from gc3.synth.demand import Demand
from gc3.synth.groups import additions, groups
from gc3.synth.limits import ENDLESS, TimeUp
from gc3.synth.network import Capacity, Network
from gc3.synth.problem import Item
from gc3.synth.schedule import Schedule, Send


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


def placed(
    network: Network, hops: Sequence[Hop], seconds: float, rounds: int | None = None, *, moving: bool = True
) -> Schedule:
    """Returns the schedule of sends.

    Args:
        network: The network.
        hops: The sends.
        seconds: The time limit.
        rounds: The rounds of every step. None: one round, or a few if bandwidths are fractions, of which a single
            round would lose a part.
        moving: Whether sends are moved in the end to save rounds. Chunks overtake each other then, for which the
            threadblocks of programs wait.

    Raises:
        TimeUp: The time limit was reached.
    """
    bandwidths = [chunks for _, chunks in network.bounds]
    lengths, steps = steps_of(hops, network.bounds_of, bandwidths, seconds, rounds, moving=moving)
    sends: list[tuple[int, Send]] = [
        (step, (hop.chunk, *network.edges[hop.edge])) for step, hop in zip(steps, hops, strict=True)
    ]
    return Schedule.of(lengths, sends)


def steps_of(
    hops: Sequence[Hop],
    bounds_of: Sequence[Sequence[int]],
    bandwidths: Sequence[Capacity],
    seconds: float,
    rounds: int | None = None,
    *,
    moving: bool = True,
) -> tuple[list[int], list[int]]:
    """Returns the rounds of each step, and the step of each send.

    Args:
        hops: The sends.
        bounds_of: For each edge the bounds that a send over it counts towards, several times if it stands for images.
        bandwidths: The chunks that each bound carries in a round.
        seconds: The time limit.
        rounds: See `placed`.
        moving: See there.

    Raises:
        TimeUp: The time limit was reached.
    """
    listed = [(hop.edge, hop.turn, hop.before) for hop in hops]
    carried = [(chunks.numerator, chunks.denominator) for chunks in bandwidths]
    found = _core.place_hops(listed, bounds_of, carried, rounds or 0, moving, min(seconds, ENDLESS))
    if found is None:
        raise TimeUp
    return found


def overlapped(
    network: Network,
    demand: Demand,
    contents: Sequence[Item],
    schedule: Schedule,
    seconds: float,
    *,
    moving: bool = True,
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
    lengths, steps = steps_of(hops, used, [chunks for _, chunks in network.bounds], seconds, moving=moving)
    listed = ((step, send) for step, group in zip(steps, carried, strict=True) for send in group)
    return Schedule.of(lengths, listed)
