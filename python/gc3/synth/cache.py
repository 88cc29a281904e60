"""A folder of schedules that were found before, one file for each instance.

What is read is checked like anything that a solver says, so that a damaged or foreign file does no harm.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from contextlib import suppress
from pathlib import Path

from gc3 import errors
from gc3.support import files
from gc3.synth import check
from gc3.synth.demand import Demand
from gc3.synth.network import Network
from gc3.synth.schedule import Schedule

_FORM = 1
# What files that hold anything else than a schedule raise.
_DAMAGE = (OSError, ArithmeticError, ValueError, LookupError, TypeError, RecursionError, errors.InternalError)


class Cache:
    """The folder."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Makes the folder if it does not exist, and tries to write to it: a search may take long.

        Raises:
            gc3.UserError: It cannot be made, or cannot be written to.
        """
        self._folder = Path(folder)
        files.make_folder(folder)

    def get(self, network: Network, demand: Demand, steps: int, rounds: int) -> Schedule | None:
        """Returns the schedule that is stored for an instance, None if there is none that is right."""
        with suppress(*_DAMAGE):
            data = files.read_json(self._file(network, demand, steps, rounds), "BadJson")
            schedule = Schedule(
                tuple(int(r) for r in data["rounds"]),
                tuple(tuple((int(c), int(a), int(b)) for c, a, b in sends) for sends in data["steps"]),
            )
            if len(schedule.steps) == steps and schedule.total_rounds == rounds:
                check.check(network, demand, schedule)
                return schedule
        return None

    def put(self, network: Network, demand: Demand, steps: int, rounds: int, schedule: Schedule) -> None:
        """Stores a schedule, at once or not at all.

        Raises:
            gc3.UserError: The folder cannot be written to.
        """
        path = self._file(network, demand, steps, rounds)
        text = json.dumps({"rounds": schedule.rounds, "steps": schedule.steps})
        name: str | None = None
        try:
            handle, name = tempfile.mkstemp(dir=self._folder)
            with os.fdopen(handle, "w") as file:
                file.write(text)
            Path(name).replace(path)
        except OSError as problem:
            if name is not None:
                Path(name).unlink(missing_ok=True)
            raise errors.error("FileUnwritable", f"'{path}': {problem.strerror}") from problem

    def _file(self, network: Network, demand: Demand, steps: int, rounds: int) -> Path:
        pieces = [(p.source, sorted(p.targets), p.count) for p in demand.pieces]
        key = repr((_FORM, network.ranks, network.edges, network.bounds, pieces, steps, rounds))
        return self._folder / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"
