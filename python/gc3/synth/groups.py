"""Sends of a step that a switch carries as one: a multicast of a chunk, or contributions to a sum that it adds up.

A schedule needs no further data for this. In a step, a rank has one value of a chunk. So all sends of the chunk by the
rank are one multicast, unless their receivers add them to something; and all sends of a chunk that a rank adds up are
one sum. On networks without such switches, every send is a group of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gc3.synth.network import Network
from gc3.synth.problem import Item
from gc3.synth.schedule import Schedule, Send


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

    Args:
        network: The network.
        sends: The sends.
        adding: Those that are added to what their receiver has.
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
