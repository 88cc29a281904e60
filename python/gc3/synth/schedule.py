"""A k-synchronous schedule (001 section 3.3): rounds per step, and the sends of chunks in each step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from gc3.synth.demand import Demand
from gc3.synth.network import Network

Send: TypeAlias = "tuple[int, int, int]"  # chunk, from, to


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
