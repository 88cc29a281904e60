"""An independent check of schedules: it shares only the data structures with the methods that find them."""

from __future__ import annotations

from collections.abc import Sequence

from gc3 import errors
from gc3.synth.demand import Demand
from gc3.synth.network import Network
from gc3.synth.problem import Item
from gc3.synth.schedule import Schedule, Send


def check(network: Network, demand: Demand, schedule: Schedule) -> None:
    """Checks that a schedule fits the network and meets the demand.

    Raises:
        gc3.InternalError: It does not; this is a defect of the method that found it.
    """
    _check_bandwidth(network, schedule)
    has = {(chunk, demand.pieces[i].source) for chunk, i in enumerate(demand.piece_of)}
    for step, sends in enumerate(schedule.steps):
        for chunk, src, dst in sends:
            if (chunk, src) not in has:
                raise _wrong(f"step {step} sends chunk {chunk} from rank {src} to {dst}, but it is not there")
        has.update((chunk, dst) for chunk, _, dst in sends)
    for chunk, i in enumerate(demand.piece_of):
        for target in demand.pieces[i].targets:
            if (chunk, target) not in has:
                raise _wrong(f"chunk {chunk} does not get to rank {target}")


def check_combining(network: Network, contents: Sequence[Item], schedule: Schedule) -> None:
    """Checks that every contribution gets into every result exactly once.

    A send of a step carries the sender's value from before the step. The receiver adds it, or replaces its own value if
    the new one contains all contributions.

    Args:
        network: The network.
        contents: For each chunk the ranks that contribute to it, and those that must have the sum in the end.
        schedule: The schedule.

    Raises:
        gc3.InternalError: It is wrong.
    """
    _check_bandwidth(network, schedule)
    everything = [sum(1 << rank for rank in item.before) for item in contents]
    held = {(chunk, rank): 1 << rank for chunk, item in enumerate(contents) for rank in item.before}
    for step, sends in enumerate(schedule.steps):
        arriving = [(chunk, src, dst, held.get((chunk, src), 0)) for chunk, src, dst in sends]
        for chunk, src, dst, carried in arriving:
            mine = held.get((chunk, dst), 0)
            if carried == 0:
                raise _wrong(f"step {step} sends chunk {chunk} from rank {src} to {dst}, but it is not there")
            if carried != everything[chunk] and carried & mine:
                raise _wrong(f"step {step} adds a contribution to chunk {chunk} of rank {dst} twice")
            held[chunk, dst] = mine | carried
    for chunk, item in enumerate(contents):
        for rank in item.after:
            if held.get((chunk, rank), 0) != everything[chunk]:
                raise _wrong(f"rank {rank} does not have all contributions to chunk {chunk}")


def _check_bandwidth(network: Network, schedule: Schedule) -> None:
    if len(schedule.rounds) != len(schedule.steps) or any(r < 0 for r in schedule.rounds):
        raise _wrong("rounds and steps do not match")
    relation = [chunks for _, chunks in network.bounds]
    for step, (rounds, sends) in enumerate(zip(schedule.rounds, schedule.steps, strict=True)):
        if len(set(sends)) != len(sends):
            raise _wrong(f"step {step} sends a chunk twice over the same link")
        total = [0] * len(relation)
        for (src, dst), count in link_use(sends).items():
            edge = network.edge_index.get((src, dst))
            if edge is None:
                raise _wrong(f"step {step} uses a link from rank {src} to {dst} that does not exist")
            for b in network.bounds_of[edge]:
                total[b] += count
        for b, chunks in enumerate(relation):
            if total[b] > chunks * rounds:
                src, dst = network.edges[network.bounds[b][0][0]]
                raise _wrong(f"step {step} sends {total[b]} chunks where {chunks * rounds} fit: from {src} to {dst}")


def _wrong(what: str) -> errors.Gc3Error:
    return errors.error("Internal", f"synthesized schedule: {what}")


def link_use(sends: tuple[Send, ...]) -> dict[tuple[int, int], int]:
    """Returns how many chunks cross each pair of ranks."""
    used: dict[tuple[int, int], int] = {}
    for _, src, dst in sends:
        used[src, dst] = used.get((src, dst), 0) + 1
    return used
