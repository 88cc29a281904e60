"""A k-synchronous schedule (001 section 3.3): rounds per step, and the sends of chunks in each step.

A switch may carry sends of a step as one: a multicast of a chunk, or contributions to a sum that it adds up. A schedule
needs no further data for this. In a step, a rank has one value of a chunk. So all sends of the chunk by the rank are
one multicast, unless their receivers add them to something; and all sends of a chunk that a rank adds up are one sum.
On networks without such switches, every send is a group of its own.

Sends of trees are `placed` in steps: a chunk is sent on as soon as it has arrived and there is room. The same overlaps
the phases of a schedule: `overlapped` keeps its sends and their order for each chunk, and lets each take place as early
as it can.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gc3 import _core
from gc3.synth.problem import ENDLESS, TimeUp
from gc3.synth.problem.demand import Demand, Item, Send
from gc3.synth.problem.network import Capacity, Network


@dataclass(frozen=True, slots=True)
class Schedule:
    """The result of a synthesizer.

    Attributes:
        rounds: Q of the paper, the rounds of each step.
        steps: The sends of each step, ordered.
    """

    rounds: tuple[int, ...]
    steps: tuple[tuple[Send, ...], ...]

    @staticmethod
    def of(rounds: Sequence[int], sends: Iterable[tuple[int, Send]]) -> Schedule:
        """Returns the schedule for sends that are given with their step."""
        steps: list[list[Send]] = [[] for _ in rounds]
        for step, send in sends:
            steps[step].append(send)
        return Schedule(tuple(rounds), tuple(tuple(sorted(step)) for step in steps))

    @property
    def total_rounds(self) -> int:
        """R of the paper."""
        return sum(self.rounds)

    @property
    def send_count(self) -> int:
        """The number of chunks sent from rank to rank, in all steps together."""
        return sum(map(len, self.steps))


def pruned(schedule: Schedule, demand: Demand) -> Schedule:
    """Returns the schedule without sends that no target depends on, and without repeated arrivals of a chunk.

    The remaining sends of a chunk form a tree from its source, so that it can be inverted.
    """
    if schedule.send_count == sum(p.count * len(p.targets - {p.source}) for p in demand.pieces):
        return schedule  # each chunk arrives once where it is needed, and nowhere else
    arrival: dict[tuple[int, int], tuple[int, int]] = {}  # (chunk, rank) -> (step, from)
    for step, sends in enumerate(schedule.steps):
        for chunk, src, dst in sends:
            if dst != demand.pieces[demand.piece_of[chunk]].source:
                arrival.setdefault((chunk, dst), (step, src))
    needed: set[tuple[int, int]] = set()
    for chunk, i in enumerate(demand.piece_of):
        piece = demand.pieces[i]
        for target in piece.targets:
            place = target
            while place != piece.source and (chunk, place) not in needed:
                needed.add((chunk, place))
                place = arrival[chunk, place][1]
    return Schedule.of(
        schedule.rounds,
        ((arrival[c, dst][0], (c, arrival[c, dst][1], dst)) for c, dst in needed),
    )


def stretched(schedule: Schedule, network: Network, steps: int) -> Schedule | None:
    """Returns the schedule with some steps of several rounds split, so that it has `steps` steps and as many rounds.

    The data of a step's sends was there before the step, so its sends may take place one after the other.

    Returns:
        None if there are already more steps, or too few rounds, or if a step cannot be split evenly.
    """
    rounds, parts = list(schedule.rounds), list(schedule.steps)
    while len(parts) < steps:
        at = max(range(len(parts)), key=lambda s: rounds[s])
        if rounds[at] < 2:  # noqa: PLR2004
            return None
        halves = _split(parts[at], network, rounds[at] // 2, rounds[at] - rounds[at] // 2)
        if halves is None:
            return None
        parts[at : at + 1] = halves
        rounds[at : at + 1] = [rounds[at] // 2, rounds[at] - rounds[at] // 2]
    return Schedule(tuple(rounds), tuple(parts)) if len(parts) == steps else None


def _split(
    sends: Sequence[Send], network: Network, first: int, second: int
) -> tuple[tuple[Send, ...], tuple[Send, ...]] | None:
    """Splits the sends of a step in two that fit `first` and `second` rounds; greedy, None if that fails."""
    left = [network.carried(rounds) for rounds in (first, second)]
    halves: tuple[list[Send], list[Send]] = ([], [])
    for send in sends:
        bounds = network.bounds_of[network.edge_index[send[1:]]]
        for half, free in zip(halves, left, strict=True):
            if all(free[b] for b in bounds):
                half.append(send)
                for b in bounds:
                    free[b] -= 1
                break
        else:
            return None
    return tuple(halves[0]), tuple(halves[1])


def repeated(schedule: Schedule, times: int, few: Demand, demand: Demand) -> Schedule:
    """Returns the schedule of a demand whose pieces have `times` as many chunks as those of `few`."""
    copies: list[range] = []
    for chunk, i in enumerate(few.piece_of):
        first = demand.first[i] + (chunk - few.first[i]) * times
        copies.append(range(first, first + times))
    steps = (tuple(sorted((c, a, b) for chunk, a, b in sends for c in copies[chunk])) for sends in schedule.steps)
    return Schedule(tuple(times * rounds for rounds in schedule.rounds), tuple(steps))


def padded(schedule: Schedule, steps: int, rounds: int) -> Schedule:
    """Returns the schedule with this many steps and rounds; surplus rounds go to the last step."""
    more = max(steps - len(schedule.rounds), 0)
    counts, sends = list(schedule.rounds) + [0] * more, [*schedule.steps, *[()] * more]
    spare = rounds - sum(counts)
    for s in range(len(counts)):
        if counts[s] == 0 and spare:
            counts[s], spare = 1, spare - 1
    counts[-1] += spare
    return Schedule(tuple(counts), tuple(sends))


def multicasts(network: Network, demand: Demand) -> bool:
    """Returns whether multicasts help: a chunk has several targets, and some switch carries them."""
    return bool(network.sent_once) and not demand.routes


def additions(contents: Sequence[Item], schedule: Schedule) -> Iterator[frozenset[Send]]:
    """Yields for each step of a correct schedule the sends that are added to what their receiver has."""
    held = {(chunk, rank): 1 << rank for chunk, item in enumerate(contents) for rank in item.before}
    for sends in schedule.steps:
        given = {send: held[send[0], send[1]] for send in sends}
        yield frozenset(s for s, value in given.items() if (mine := held.get((s[0], s[2]), 0)) and not mine & value)
        for (chunk, _, dst), value in given.items():
            held[chunk, dst] = held.get((chunk, dst), 0) | value


def groups(network: Network, sends: Sequence[Send], adding: frozenset[Send]) -> list[tuple[Send, ...]]:
    """Returns the sends of a step in groups, each of which a switch carries as one; in the order of their first sends.

    Those that are `adding` are added to what their receiver has.
    """
    found: dict[object, list[Send]] = {}
    for send in sends:
        chunk, src, dst = send
        adds = send in adding
        once = network.received_once if adds else network.sent_once
        key: object = send
        if once and not once.isdisjoint(network.bounds_of[network.edge_index[src, dst]]):
            key = adds, chunk, dst if adds else src
        found.setdefault(key, []).append(send)
    return [tuple(group) for group in found.values()]


def loads(network: Network, sends: Sequence[Send], adding: frozenset[Send] = frozenset()) -> list[int]:
    """Returns what each bound carries of the sends of a step."""
    total = [0] * len(network.bounds)
    for group in groups(network, sends, adding):
        for b in network.load([network.edge_index[src, dst] for _, src, dst in group], adds=group[0] in adding):
            total[b] += 1
    return total


def cheapest_path(
    network: Network, begin: Mapping[int, float], ends: Collection[int], price: Callable[[int], float]
) -> list[int] | None:
    """Returns the edges of the cheapest path to one of `ends` from one of `begin`, each with what it costs already."""
    cost, via = dict(begin), dict[int, int]()
    todo = [(so_far, rank) for rank, so_far in begin.items()]
    heapq.heapify(todo)
    while todo:
        so_far, rank = heapq.heappop(todo)
        if rank in ends:
            path: list[int] = []
            while rank not in begin:
                path.append(via[rank])
                rank = network.edges[via[rank]][0]
            return path[::-1]
        if so_far > cost[rank]:
            continue
        for edge in network.outgoing[rank]:
            target, further = network.edges[edge][1], so_far + price(edge)
            if further < cost.get(target, math.inf):
                cost[target], via[target] = further, edge
                heapq.heappush(todo, (further, target))
    return None


@dataclass(frozen=True, slots=True)
class Hop:
    """A send."""

    chunk: int
    edge: int  # the edge of the network
    turn: int  # among sends that compete, those with a lower number are preferred
    before: tuple[int, ...]  # the sends that bring what it sends; they are listed earlier


def placed(
    network: Network, hops: Sequence[Hop], seconds: float, rounds: int | None = None, *, moving: bool = True
) -> Schedule:
    """Returns the schedule of sends, with so many rounds in every step.

    None: one round, or a few if bandwidths are fractions, of which a single round would lose a part. If sends are
    `moving` in the end, this saves rounds, but chunks overtake each other, for which the threadblocks of programs wait.
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
    """Returns the rounds of each step, and the step of each send; see `placed`.

    A send over an edge counts towards its `bounds_of`, several times towards one if it stands for images. The
    bandwidths are the chunks that each bound carries in a round.
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


def reversed_in_time(schedule: Schedule) -> Schedule:
    """Returns the schedule reversed in time, with the direction of every send reversed."""
    return Schedule(
        schedule.rounds[::-1],
        tuple(tuple(sorted((c, dst, src) for c, src, dst in sends)) for sends in schedule.steps[::-1]),
    )
