"""A folder of schedules found earlier, one file for each instance.

Schedules from it are checked like those of a solver, so a damaged or foreign file does no harm.
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

_FORM = 2
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
                check.check(network, demand, schedule)
                return schedule
        return None

    def put(self, network: Network, demand: Demand, steps: int, rounds: int, schedule: Schedule) -> None:
        """Stores a schedule atomically; if that fails, `problems` says why, and the search goes on with its result."""
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
            self.problems.append(f"'{path}': {problem.strerror}")

    def _file(self, network: Network, demand: Demand, steps: int, rounds: int) -> Path:
        pieces = [(p.source, sorted(p.targets), p.count) for p in demand.pieces]
        once = sorted(network.sent_once)
        key = repr((_FORM, network.ranks, network.edges, network.bounds, once, pieces, steps, rounds))
        return self._folder / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"
