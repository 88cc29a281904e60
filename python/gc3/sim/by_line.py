"""The time of a run by the lines of the user's code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gc3 import _core

if TYPE_CHECKING:
    import numpy.typing as npt

    from gc3.sim.explanation import Explanation

UNKNOWN = 0xFFFFFFFF


@dataclass(slots=True)
class Share:
    """What one line of the code takes."""

    steps: int = 0  # instructions, of all ranks
    path_s: float = 0.0  # seconds of the critical path
    busy_s: float = 0.0  # seconds that threadblocks were busy with them
    waited_s: float = 0.0  # seconds that threadblocks waited before them

    def add(self, other: Share) -> None:
        """Adds what another line takes."""
        self.steps += other.steps
        self.path_s += other.path_s
        self.busy_s += other.busy_s
        self.waited_s += other.waited_s


def line_of(program: _core.Program) -> npt.NDArray[np.uint32]:
    """Returns, by instruction, the index of its line; `UNKNOWN` where it is not known."""
    found = np.frombuffer(program.line_of, np.uint32)
    return found if len(found) else np.full(program.instruction_count, UNKNOWN, np.uint32)


def shares(program: _core.Program, why: Explanation | None, copies: int = 1) -> dict[tuple[str, int], Share]:
    """Returns the share of each line, by file and number; a line that calls has that of what it calls as well.

    Args:
        program: The program, with its source lines.
        why: An explained run of it; None: only the steps are counted.
        copies: How many ranks each of its ranks stands for.
    """
    lines = program.source_lines
    count = len(lines) + 1  # the last: unknown
    of = np.minimum(line_of(program), len(lines))
    steps = np.bincount(of, minlength=count)
    path, busy, waited = np.zeros(count), np.zeros(count), np.zeros(count)
    if why is not None and len(why.records):
        records = why.records
        line = of[np.array(program.first_steps, np.int64)[records["tb"]] + records["step"]]
        busy = np.bincount(line, (records["end"] - records["start"]) * 1e-12, minlength=count)
        waited = np.bincount(line, (records["start"] - records["ready"]) * 1e-12, minlength=count)
        for begin, end, record in why.path_records:
            if record is not None:
                path[line[record]] += end - begin
    found: dict[tuple[str, int], Share] = {}
    for k in range(len(lines)):
        own = Share(copies * int(steps[k]), float(path[k]), copies * float(busy[k]), copies * float(waited[k]))
        if not own.steps:
            continue
        seen: set[tuple[str, int]] = set()
        at: int | None = k
        while at is not None:
            file, number, at = lines[at]
            if (file, number) not in seen:  # a function that calls itself
                seen.add((file, number))
                found.setdefault((file, number), Share()).add(own)
    return found
