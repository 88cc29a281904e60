"""Explains the duration of a run, simulated or recorded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from gc3 import _core

if TYPE_CHECKING:
    import numpy.typing as npt

_NONE = 0xFFFFFFFF
_WHERE_LINKS = "link"

# Record of gc3/sim/outcome.h.
RECORD = np.dtype(
    [
        ("ready", "i8"),
        ("due", "i8"),
        ("start", "i8"),
        ("end", "i8"),
        ("delivered", "i8"),
        ("bytes", "u8"),
        ("tb", "u4"),
        ("step", "u4"),
        ("tile", "u4"),
        ("before", "u4"),
        ("resource", "u4"),
        ("sent_by", "u4"),
        ("slice", "u2"),
        ("wait", "u1"),
        ("delivered_by", "u1"),
        ("sends", "u4"),
    ]
)


def waited_for(record: Any) -> str:
    """The larger part of the wait before a record: for the processor, or for what its field `wait` says."""
    ready, due, start = (int(record[name]) for name in ("ready", "due", "start"))
    return "core" if start - due > due - ready else _core.sim_causes()[int(record["wait"])]


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of the critical path."""

    from_s: float  # when it begins, in seconds
    to_s: float  # when it ends
    # the cause of the time: launch, threadblock, receive, credit, semaphore, link, connection, core, latency,
    # rendezvous
    cause: str
    where: str  # the step that it belongs to, as "rank 0 threadblock 1 step 2 (rrcs)", or the launch
    resource: str  # the link, if the cause is one


class Explanation:
    """The critical path and the stalls of a run."""

    def __init__(
        self,
        place: Callable[[int, int], str],
        outcome: _core.SimOutcome,
        resources: list[str],
        program: _core.Program | None = None,
        copies: int = 1,
    ) -> None:
        """Takes a run with records, names of its resources, and what names a step of a threadblock.

        `program` is what was simulated, if known: each of its ranks stands for `copies`.
        """
        self.place = place
        self.program = program
        self.copies = copies
        self._outcome = outcome
        self._resources = resources

    def __repr__(self) -> str:
        """Describes it in one line."""
        return f"<gc3.sim.Explanation {', '.join(f'{cause} {1e6 * s:.4g} us' for cause, s in self.causes.items())}>"

    @cached_property
    def _found(self) -> _core.SimExplanation:
        return self._outcome.explain()

    @cached_property
    def causes(self) -> dict[str, float]:
        """Seconds of the critical path by cause, largest first; they add up to the time of the run."""
        return _by_size(zip(_core.sim_causes(), self._found.on_path, strict=True))

    @cached_property
    def stalls(self) -> dict[str, float]:
        """Seconds that all threadblocks together waited, by cause."""
        stalls = (self.copies * waited for waited in self._found.stalls)
        return _by_size(zip(_core.sim_causes(), stalls, strict=True))

    @property
    def work_s(self) -> float:
        """Seconds that all threadblocks together were busy."""
        return self.copies * self._found.work_s

    @cached_property
    def links(self) -> dict[str, float]:
        """Seconds of the critical path by link, the greatest first."""
        total: dict[str, float] = {}
        for begin, end, cause, _, resource in self._found.path:
            if cause == _WHERE_LINKS:
                name = self._resources[resource]
                total[name] = total.get(name, 0.0) + end - begin
        return _by_size(total.items())

    @cached_property
    def path(self) -> list[Stretch]:
        """The critical path, from the launch to the end of the run."""
        steps = self.records
        return [
            Stretch(
                begin,
                end,
                cause,
                "launch" if record == _NONE else self.place(int(steps[record]["tb"]), int(steps[record]["step"])),
                "" if resource == _NONE else self._resources[resource],
            )
            for begin, end, cause, record, resource in self._found.path
        ]

    @property
    def path_records(self) -> list[tuple[float, float, int | None]]:
        """The critical path as times and indices of `records`; None: the launch."""
        return [(begin, end, None if k == _NONE else k) for begin, end, _, k, _ in self._found.path]

    @cached_property
    def records(self) -> npt.NDArray[Any]:
        """Every slice operation, by start: the fields of `RECORD`, times in picoseconds."""
        return np.frombuffer(self._outcome.record_bytes(), RECORD)

    @property
    def resources(self) -> list[str]:
        """Names of the machine's resources, by their numbers in records."""
        return self._resources

    @property
    def time_s(self) -> float:
        """Seconds from the launch until the last rank is done."""
        return self._outcome.time_s

    @property
    def cause(self) -> str:
        """The main cause of the time: the largest part of the critical path, with the link if it is one."""
        if not self.causes:
            return ""
        name = next(iter(self.causes))
        return f"{name} {next(iter(self.links))}" if name == _WHERE_LINKS else name


def _by_size(items: Any) -> dict[str, float]:
    return dict(sorted(((k, v) for k, v in items if v > 0), key=lambda item: -item[1]))
