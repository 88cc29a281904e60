"""A recording of the steps of the threadblocks in a run on a CPU engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from gc3 import _core

# StepRecord of gc3/runtime/interp/engine.h.
STEP = np.dtype(
    [
        ("ready", "i8"),
        ("start", "i8"),
        ("end", "i8"),
        ("bytes", "u8"),
        ("rank", "u4"),
        ("tb", "u4"),
        ("step", "u4"),
        ("tile", "u4"),
        ("worker", "u4"),
        ("waiting", "u1"),
        ("paused", "u1"),
        ("unused", "u2"),
    ]
)


@dataclass(frozen=True, slots=True)
class Recording:
    """A recorded run."""

    program: _core.Program  # the program that ran
    engine: str  # "threads" or "processes"
    slots: int  # FIFO slots of a connection
    begin_ns: int  # when the first rank began, in nanoseconds of the clock that all processes of a host share
    end_ns: int  # when the last rank ended
    steps: npt.NDArray[Any]  # the steps of all threadblocks in all tiles: the fields of `STEP`, times in nanoseconds
    dropped: int  # number of steps that were not recorded, because the limit was reached


def join(program: _core.Program, engine: str, slots: int, parts: list[tuple[int, int, int, bytes]]) -> Recording:
    """Joins the recordings of the workers (begin, end, dropped, steps as bytes) into one."""
    return Recording(
        program,
        engine,
        slots,
        min(begin for begin, _, _, _ in parts),
        max(end for _, end, _, _ in parts),
        np.frombuffer(b"".join(steps for _, _, _, steps in parts), STEP),
        sum(dropped for _, _, dropped, _ in parts),
    )


def part(found: _core.Recording) -> tuple[int, int, int, bytes]:
    """Returns the core's recording as plain data, for `join`."""
    return found.begin, found.end, found.dropped, found.step_bytes
