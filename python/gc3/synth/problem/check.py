"""An independent check of schedules: it shares only the data structures with the methods that find them.

A cache is a folder of schedules found earlier, one file for each instance. Schedules from it are checked like those of
a solver, so a damaged or foreign file does no harm.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

from gc3 import errors
from gc3.support import files
from gc3.synth.problem.demand import Demand, Item, Send
from gc3.synth.problem.network import Network
from gc3.synth.problem.schedule import Schedule

_FORM = 2


def check(network: Network, demand: Demand, schedule: Schedule) -> None:
    """Checks that a schedule fits the network and meets the demand.

    Raises:
        gc3.InternalError: It does not; this is a defect of the method that found it.
    """
    _check_lengths(schedule)
    has = {(chunk, demand.pieces[i].source) for chunk, i in enumerate(demand.piece_of)}
    for step, sends in enumerate(schedule.steps):
        _check_bandwidth(network, schedule.rounds[step], step, sends, ())
        for chunk, src, dst in sends:
            if (chunk, src) not in has:
                raise _wrong(f"step {step} sends chunk {chunk} from rank {src} to {dst}, but it is not there")
        has.update((chunk, dst) for chunk, _, dst in sends)
    for chunk, i in enumerate(demand.piece_of):
        for target in demand.pieces[i].targets:
            if (chunk, target) not in has:
                raise _wrong(f"chunk {chunk} does not get to rank {target}")


def check_combining(network: Network, contents: Sequence[Item], schedule: Schedule) -> None:
    """Checks that every contribution gets into every result exactly once; the contents are the purpose of each chunk.

    A send of a step carries the sender's value from before the step. The receiver adds it, or replaces its own value if
    the new one contains all contributions.

    Raises:
        gc3.InternalError: It is wrong.
    """
    _check_lengths(schedule)
    everything = [sum(1 << rank for rank in item.before) for item in contents]
    held = {(chunk, rank): 1 << rank for chunk, item in enumerate(contents) for rank in item.before}
    for step, sends in enumerate(schedule.steps):
        arriving = [(chunk, src, dst, held.get((chunk, src), 0)) for chunk, src, dst in sends]
        adding = [
            (c, src, dst) for c, src, dst, value in arriving if (mine := held.get((c, dst), 0)) and not mine & value
        ]
        _check_bandwidth(network, schedule.rounds[step], step, sends, adding)
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


def _check_lengths(schedule: Schedule) -> None:
    if len(schedule.rounds) != len(schedule.steps) or any(r < 0 for r in schedule.rounds):
        raise _wrong("rounds and steps do not match")


def _check_bandwidth(network: Network, rounds: int, step: int, sends: Sequence[Send], adding: Collection[Send]) -> None:
    """Checks that a step fits. A bound may carry a multicast, or what is `adding` up to one sum, as a single chunk."""
    if len(set(sends)) != len(sends):
        raise _wrong(f"step {step} sends a chunk twice over the same link")
    added = set(adding)
    total = [0] * len(network.bounds)
    carried: set[tuple[int, bool, int, int]] = set()  # bound, whether it is a sum, chunk, and the rank at its one end
    for chunk, src, dst in sends:
        edge = network.edge_index.get((src, dst))
        if edge is None:
            raise _wrong(f"step {step} uses a link from rank {src} to {dst} that does not exist")
        adds = (chunk, src, dst) in added
        for b in network.bounds_of[edge]:
            if b in (network.received_once if adds else network.sent_once):
                message = b, adds, chunk, dst if adds else src
                if message in carried:
                    continue
                carried.add(message)
            total[b] += 1
    for b, (members, chunks) in enumerate(network.bounds):
        if total[b] > chunks * rounds:
            src, dst = network.edges[members[0]]
            raise _wrong(f"step {step} sends {total[b]} chunks where {chunks * rounds} fit: from {src} to {dst}")


def _wrong(what: str) -> errors.Gc3Error:
    return errors.error("Internal", f"synthesized schedule: {what}")


# Exceptions of files that contain anything other than a schedule.
_DAMAGE = (OSError, ArithmeticError, ValueError, LookupError, TypeError, RecursionError, errors.InternalError)


class Cache:
    """The folder."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Creates the folder if it does not exist, and tries to write to it before a search that may take long.

        Raises:
            gc3.UserError: It cannot be created, or cannot be written to.
        """
        self._folder = Path(folder)
        self.problems: list[str] = []  # why schedules could not be stored
        files.make_folder(folder)

    def get(self, network: Network, demand: Demand, steps: int, rounds: int) -> Schedule | None:
        """Returns the stored schedule of an instance; None if there is no correct one."""
        path = self._file(network, demand, steps, rounds)
        with suppress(*_DAMAGE):
            if not path.is_file():  # opening a pipe may never end
                return None
            data = files.read_json(path, "BadJson")
            schedule = Schedule(
                tuple(int(r) for r in data["rounds"]),
                tuple(tuple((int(c), int(a), int(b)) for c, a, b in sends) for sends in data["steps"]),
            )
            if len(schedule.steps) == steps and schedule.total_rounds == rounds:
                check(network, demand, schedule)
                return schedule
        return None

    def put(self, network: Network, demand: Demand, steps: int, rounds: int, schedule: Schedule) -> None:
        """Stores a schedule atomically; if that fails, `problems` says why, and the search goes on with its result."""
        path = self._file(network, demand, steps, rounds)
        text = json.dumps({"rounds": schedule.rounds, "steps": schedule.steps})
        try:
            files.replace_text(str(path), text)
        except errors.UserError as problem:
            self.problems.append(problem.message.partition(": ")[2])  # without the title

    def _file(self, network: Network, demand: Demand, steps: int, rounds: int) -> Path:
        pieces = [(p.source, sorted(p.targets), p.count) for p in demand.pieces]
        once = sorted(network.sent_once)
        key = repr((_FORM, network.ranks, network.edges, network.bounds, once, pieces, steps, rounds))
        return self._folder / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"
