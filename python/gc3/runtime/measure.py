"""Timing as in nccl-tests: its sizes, its loops, its definitions of bandwidth.

S is the size of the largest buffer of a rank, algbw = S / time, busbw = algbw x the factor of the collective, and GB is
1e9 bytes. Time is the mean over the timed iterations; an iteration lasts until the slowest rank has finished. Unlike in
nccl-tests, blocks are not rounded down to 16 bytes: any element count is measured.
"""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeAlias

from gc3 import collectives, datatypes, errors
from gc3.runtime.checking import Case
from gc3.runtime.program import Program

if TYPE_CHECKING:
    from gc3 import _core


# Runs a program several times and returns the seconds of each, as `Program.time` does.
Timer: TypeAlias = "Callable[..., list[float]]"


@dataclass(frozen=True, slots=True)
class Measurement:
    """One column group of a row of nccl-tests' table."""

    time_us: float  # mean time of an iteration in microseconds
    min_us: float  # the fastest iteration
    median_us: float  # the median iteration
    max_us: float  # the slowest iteration
    algbw: float  # S / time in GB/s
    busbw: float  # bus bandwidth in GB/s
    wrong: int | None  # wrong elements in a run after the timed ones; None if not checked
    quarter_us: float = 0.0  # a quarter of the iterations took at most this long
    three_quarters_us: float = 0.0  # and three quarters this long
    # the part of the time in which a thread was ready to run and had no core, of the thread that was so the longest; 0
    # where the system does not say
    waited: float = 0.0


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table; None for a mode that the program cannot run in."""

    size: int
    count: int
    type: str
    redop: str
    root: int
    out_of_place: Measurement | None
    in_place: Measurement | None

    @property
    def modes(self) -> list[Measurement]:
        """The measurements of the row."""
        return [m for m in (self.out_of_place, self.in_place) if m is not None]


def bandwidth(model: _core.Collective, size: int, seconds: float) -> tuple[float, float]:
    """Returns (algbw, busbw) in GB/s for S = `size` bytes moved in `seconds`.

    >>> bandwidth(collectives.get("allreduce").model(4), 10**9, 0.5)
    (2.0, 3.0)
    """
    algbw = size / seconds / 1e9 if seconds > 0 else 0.0
    return algbw, algbw * collectives.factor(model)


def sizes(first: int, last: int, *, factor: int = 1, step: int = 0) -> Iterator[int]:
    """Yields sizes from `first` to `last`, times `factor` if that is above 1, else plus `step`.

    >>> list(sizes(1024, 8192, factor=2))
    [1024, 2048, 4096, 8192]
    """
    if factor <= 1 and step <= 0 and first < last:
        raise errors.error("BadArgument", "sizes grow by a factor of at least 2 or by a step of at least 1")
    if factor > 1 and first <= 0 < last:
        raise errors.error("BadArgument", "sizes that grow by a factor start at 1 byte or more")
    size = first
    while size <= last:
        yield size
        if size == last:
            return
        size = size * factor if factor > 1 else size + step


def summarize(model: _core.Collective, size: int, seconds: Sequence[float], wrong: int | None) -> Measurement:
    """Returns the measurement for the times of the iterations."""
    mean = statistics.fmean(seconds)
    algbw, busbw = bandwidth(model, size, mean)
    us = [1e6 * s for s in (mean, min(seconds), statistics.median(seconds), max(seconds))]
    first, _, third = statistics.quantiles(seconds, n=4, method="inclusive") if len(seconds) > 1 else [*seconds] * 3
    return Measurement(us[0], us[1], us[2], us[3], algbw, busbw, wrong, 1e6 * first, 1e6 * third)


def _waits() -> dict[str, int]:
    """By thread of this process and of those that it has started: for how many nanoseconds it had no core."""
    found: dict[str, int] = {}
    with suppress(OSError):
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        for process in ("self", *children):
            for thread in Path(f"/proc/{process}/task").iterdir():
                with suppress(OSError):  # it has ended
                    found[str(thread)] = int((thread / "schedstat").read_text().split()[1])
    return found


def measure(
    program: Program,
    count: int,
    *,
    dtype: str = "float32",
    op: str = "sum",
    warmup: int = 5,
    iterations: int = 20,
    check: bool = True,
    timer: Timer | None = None,
    watched: bool = False,
) -> Measurement:
    """Times `program` with `count` elements per block and checks the result of one more run.

    `timer` runs it, on the engine of `Program.time` if None. If it is `watched`, the result says whether threads waited
    for a core; then there is one more run to warm up, at whose end all threads are there.
    """
    time = Program.time if timer is None else timer
    case = Case(program.collective, count, dtype, op)
    inputs = case.inputs()
    arguments: dict[str, Any] = {"count": count, "dtype": dtype, "op": op}
    # The outputs of the timed iterations are freed before those of the check are allocated, because they may be large.
    outputs, before = case.poisoned_outputs(), dict[str, int]()
    if watched:
        time(program, inputs, outputs=outputs, warmup=warmup, iterations=1, **arguments)
        warmup, before = 0, _waits()
    begun = perf_counter()
    seconds = time(program, inputs, outputs=outputs, warmup=warmup, iterations=iterations, **arguments)
    took, after = perf_counter() - begun, _waits() if before else {}
    waited = max((after[thread] - before.get(thread, 0) for thread in after), default=0) * 1e-9 / max(took, 1e-9)
    del outputs
    wrong = None
    if check:
        outputs = case.poisoned_outputs()
        time(program, inputs, outputs=outputs, warmup=0, iterations=1, **arguments)
        comparison = case.further(
            case.compare(inputs, outputs),
            lambda i, o: time(program, i, outputs=o, warmup=0, iterations=1, **arguments),
        )
        wrong = comparison.wrong + len(comparison.changed_inputs)
    size = collectives.size_for(program.collective, count, datatypes.dtype(dtype).itemsize)
    # Where most of the time is beside the iterations, so may be the wait.
    waited = min(waited, 1.0) if 2 * sum(seconds) > took else 0.0
    return replace(summarize(program.collective, size, seconds, wrong), waited=waited)


def cores() -> int:
    """Returns the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def machine() -> dict[str, Any]:
    """Returns the description of this machine for measurements: processor, cores, bytes of memory, kernel."""
    cpu = platform.processor()
    # In some containers it is not there.
    with suppress(OSError), Path("/proc/cpuinfo").open() as lines:  # long, and slow to make, on machines of many cores
        for line in lines:
            if line.startswith("model name"):
                cpu = line.partition(":")[2].strip()
                break
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {"cpu": cpu, "cores": cores(), "memory_bytes": memory, "kernel": platform.release()}
