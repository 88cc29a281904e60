"""Greedy schedules for given rounds: in every step each rank receives as much as it can, the rarest chunks first."""

from __future__ import annotations

import random
from collections.abc import Sequence

from gc3.synth.demand import Demand
from gc3.synth.limits import Hurry, at_leisure
from gc3.synth.network import Network
from gc3.synth.schedule import Schedule, Send


def greedy(
    network: Network, demand: Demand, rounds: Sequence[int], seed: int, hurry: Hurry = at_leisure
) -> Schedule | None:
    """Returns a schedule with these rounds; None if the greedy choices do not find one."""
    chance = random.Random(seed)  # noqa: S311 - nothing secret
    everyone = range(network.ranks)
    has: list[set[int]] = [set() for _ in everyone]
    wants: list[set[int]] = [set() for _ in everyone]
    holders = [1] * demand.chunk_count
    for i, piece in enumerate(demand.pieces):
        chunks = range(demand.first[i], demand.first[i + 1])
        has[piece.source].update(chunks)
        for target in piece.targets:
            wants[target].update(chunks)
    sends: list[tuple[int, Send]] = []
    order = list(everyone)
    for step, count in enumerate(rounds):
        hurry()
        free = network.carried(count)
        arrived: list[tuple[int, int]] = []
        chance.shuffle(order)
        for rank in order:
            taken = _take_in(network, rank, has, wants[rank], holders, free, chance)
            for chunk, e in taken:
                sends.append((step, (chunk, network.edges[e][0], rank)))
                holders[chunk] += 1
                arrived.append((rank, chunk))
        for rank, chunk in arrived:
            has[rank].add(chunk)
            wants[rank].discard(chunk)
    return None if any(wants) else Schedule.of(rounds, sends)


def _take_in(
    network: Network,
    rank: int,
    has: Sequence[set[int]],
    wanted: set[int],
    holders: Sequence[int],
    free: list[int],
    chance: random.Random,
) -> list[tuple[int, int]]:
    """Matches chunks with the edges into a rank, with augmenting paths where every bound is of one edge."""
    edges = [e for e in network.incoming[rank] if all(free[b] for b in network.bounds_of[e])]
    sources = {e: has[network.edges[e][0]] & wanted for e in edges}
    chunks = sorted(set[int]().union(*sources.values()))
    chance.shuffle(chunks)
    chunks.sort(key=holders.__getitem__)
    brought: dict[int, list[int]] = {e: [] for e in edges}
    room = {e: min(free[b] for b in network.bounds_of[e]) for e in edges}

    def place(chunk: int, tried: set[int]) -> bool:
        ways = [e for e in edges if e not in tried and chunk in sources[e]]
        if network.point_to_point:
            for e in ways:
                if len(brought[e]) < room[e]:
                    brought[e].append(chunk)
                    return True
            for e in ways:
                tried.add(e)
                for k, other in enumerate(brought[e]):
                    if place(other, tried):
                        brought[e][k] = chunk
                        return True
            return False
        for e in sorted(ways, key=lambda e: -min(free[b] for b in network.bounds_of[e])):
            if all(free[b] for b in network.bounds_of[e]):
                brought[e].append(chunk)
                for b in network.bounds_of[e]:
                    free[b] -= 1
                return True
        return False

    total = sum(room.values())
    placed = 0
    for chunk in chunks:
        placed += place(chunk, set())
        if placed == total and network.point_to_point:
            break
    return [(chunk, e) for e, listed in brought.items() for chunk in listed]
