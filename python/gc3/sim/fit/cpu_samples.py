"""The programs by which the CPU engines are calibrated, and their times on this machine."""

from __future__ import annotations

import json
import math
import random
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeAlias

from gc3 import algorithms, collectives, datatypes, errors, lang
from gc3.runtime import kept_files
from gc3.sim.fit.calibrate import Case
from gc3.support import files

if TYPE_CHECKING:
    from pathlib import Path

    from gc3.runtime.program import Program

_ITEM = 4
_FORMAT = "gc3_cpu_times"


@dataclass(frozen=True, slots=True)
class Sample:
    """A program to measure: an algorithm with its parameters, and how it is compiled."""

    algorithm: str
    protocol: str
    parameters: tuple[tuple[str, int], ...]
    instances: int = 1

    @property
    def name(self) -> str:
        """As on the command line."""
        given = [f"{name}={value}" for name, value in self.parameters]
        copies = [f"instances={self.instances}"] if self.instances > 1 else []
        return f"{self.algorithm}:{','.join([*given, *copies, f'protocol={self.protocol}'])}"

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        return math.prod(value for name, value in self.parameters if name in ("R", "N", "G"))

    def compile(self) -> Program:
        """Returns the program, which is compiled once."""
        return _compiled(self)


@cache
def _compiled(sample: Sample) -> Program:
    given: dict[str, Any] = dict(sample.parameters)
    chosen = algorithms.load(sample.algorithm)
    return lang.compile(chosen, protocol=sample.protocol, instances=sample.instances, memory="fifo", **given)


def _samples(names: Sequence[tuple[str, dict[str, int]]], protocols: Sequence[str]) -> tuple[Sample, ...]:
    return tuple(Sample(name, protocol, tuple(given.items())) for name, given in names for protocol in protocols)


# Always fitted: each kind of work, few and many threadblocks, 2 to 8 ranks.
_BASE = (
    ("ring_allreduce", {"R": 2}),
    ("ring_allreduce", {"R": 4}),
    ("ring_allreduce", {"R": 8, "channels": 4}),
    ("allpairs_allreduce", {"R": 4}),
    ("direct_allgather", {"R": 8}),
    ("chain_broadcast", {"R": 2}),
)
# Half of these algorithms are fitted and the other half predicted. The draw was fixed before any of them was measured.
_DRAWN = (
    ("recursive_halving_doubling_allreduce", {"R": 8}),
    ("binomial_tree_allreduce", {"R": 5}),
    ("direct_allreduce", {"R": 3}),
    ("ring_allgather", {"R": 6}),
    ("bruck_allgather", {"R": 5}),
    ("recursive_doubling_allgather", {"R": 4}),
    ("direct_reducescatter", {"R": 4}),
    ("recursive_halving_reducescatter", {"R": 8}),
    ("pairwise_alltoall", {"R": 5}),
    ("two_step_alltoall", {"N": 2, "G": 2}),
    ("inplace_alltoall", {"R": 3}),
    ("chain_reduce", {"R": 4}),
    ("binomial_reduce", {"R": 6}),
    ("flat_broadcast", {"R": 7}),
    ("scatter_allgather_broadcast", {"R": 4}),
    ("flat_gather", {"R": 5}),
)
_FITTED_TOO = frozenset(random.Random(5).sample(range(len(_DRAWN)), len(_DRAWN) // 2))  # noqa: S311  not a secret
TRAINING = _samples([*_BASE, *(f for k, f in enumerate(_DRAWN) if k in _FITTED_TOO)], datatypes.FORMATS)
UNSEEN = _samples([f for k, f in enumerate(_DRAWN) if k not in _FITTED_TOO], datatypes.FORMATS)
SIZES = tuple(1 << k for k in range(10, 26, 2))  # 1 KiB to 16 MiB
TURNS = 2
SECONDS = 44.0  # of the minute of a calibration; the rest is for the fit
_CELL_SECONDS = 0.02  # of the timed runs at a size
_MOST_RUNS, _FEWEST_RUNS = 40, 3
_LONGEST_RUN = 0.1  # seconds: larger sizes, which would take longer, are left out

# Runs a program at S = `size` bytes some times after some untimed ones, and returns the seconds of each.
Timed: TypeAlias = "Callable[[Sample, int, int, int], Sequence[float]]"


@dataclass
class Times:
    """What has been measured of an engine so far."""

    engine: str  # its name
    # for each turn the seconds of the fastest run by size, by the name of the sample
    turns: list[dict[str, dict[int, float]]] = field(default_factory=list[dict[str, dict[int, float]]])
    path: Path | None = None  # where they are kept until all are there; None: nowhere

    @staticmethod
    def kept(engine: str) -> Times:
        """Returns what an interrupted calibration has measured of an engine on this machine, or nothing.

        Raises:
            gc3.UserError: The file is damaged, or other users can write to it.
        """
        what = f"measured-{engine}"
        times = Times(engine, path=kept_files.path(what))
        if (found := kept_files.read(what, "gc3 sim calibrate", "BadMeasurements")) is None:
            return times
        file, text = found
        try:
            for turn in files.parse_json(text, "BadMeasurements", str(file))[_FORMAT]:
                rows = {name: {int(size): float(s) for size, s in row.items()} for name, row in turn.items()}
                if any(not 0 < s < math.inf for row in rows.values() for s in row.values()):
                    raise ValueError("a time above 0 is needed")
                times.turns.append(rows)
        except (KeyError, TypeError, ValueError, AttributeError) as problem:
            raise errors.error(
                "BadMeasurements", f"'{file}' is not what an interrupted calibration has kept ({problem}): remove it"
            ) from None
        return times

    @property
    def count(self) -> int:
        """How many samples have been measured, in all turns."""
        return sum(map(len, self.turns))

    def add(self, turn: int, sample: Sample, row: dict[int, float]) -> None:
        """Adds the times of a sample, and keeps them."""
        while len(self.turns) <= turn:
            self.turns.append({})
        self.turns[turn][sample.name] = row
        if self.path is not None:
            kept_files.write(self.path, json.dumps({_FORMAT: self.turns}))

    def forget(self) -> None:
        """Removes what is kept."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)

    def spread(self) -> float:
        """Returns the median part by which a time of the slowest turn exceeds that of the fastest; one turn: 0."""
        first = self.turns[0] if self.turns else {}
        cells = [
            [turn[name][size] for turn in self.turns if size in turn.get(name, {})]
            for name, row in first.items()
            for size in row
        ]
        return statistics.median([max(cell) / min(cell) - 1 for cell in cells]) if cells else 0.0

    def cases(self, samples: Sequence[Sample]) -> list[Case]:
        """Returns the fastest run of each sample at each size."""
        found: list[Case] = []
        for sample in samples:
            rows = [turn[sample.name] for turn in self.turns if sample.name in turn]
            for size in sorted({size for row in rows for size in row}):
                found.append(Case(sample.compile(), size, min(row[size] for row in rows if size in row)))
        return found


def measure(
    samples: Sequence[Sample],
    ranks: Callable[[int], AbstractContextManager[Timed]],
    times: Times,
    *,
    sizes: Sequence[int] = SIZES,
    turns: int = TURNS,
    seconds: float = SECONDS,
    begin: Callable[[str], None] = lambda _: None,
) -> bool:
    """Adds the times of samples on an engine of this machine to `times`; what is there is not measured again.

    Slower runs are affected by other work of the machine and by the placement of threads on processors, which lasts for
    a while. Hence there are several turns, each through all samples.

    Args:
        samples: The programs to run.
        ranks: Starts a number of ranks of the engine.
        times: What is known, and receives the rest.
        sizes: S in bytes.
        turns: Through the samples.
        seconds: After these no size of a sample begins, and no turn that would not end by then.
        begin: Called with the name of each sample before it runs.

    Returns:
        Whether every sample has been measured.
    """
    end = time.monotonic() + seconds
    in_order = sorted(samples, key=lambda s: s.ranks)
    for turn in range(turns):
        known = times.turns[turn] if turn < len(times.turns) else {}
        rest = [sample for sample in in_order if sample.name not in known]
        began = time.monotonic()
        if turn and began + (began - end + seconds) / turn > end:
            break  # another turn would take as long as those before
        for count, group in groupby(rest, key=lambda s: s.ranks):
            with ranks(count) as timed:
                for sample in group:
                    begin(sample.name)
                    row = _row(sample, timed, sizes, end)
                    if row is None:
                        return turn > 0
                    times.add(turn, sample, row)
    return True


def _row(sample: Sample, timed: Timed, sizes: Sequence[int], end: float) -> dict[int, float] | None:
    """The fastest run of each actual size; None: the time was up."""
    model = sample.compile().collective
    row: dict[int, float] = {}
    for size in sizes:
        if time.monotonic() > end:
            return None
        count = max(collectives.count_for(model, size, _ITEM), 1)
        first = min(timed(sample, size, 1, 2))
        runs = int(min(max(_CELL_SECONDS / first, _FEWEST_RUNS), _MOST_RUNS))
        row[collectives.size_for(model, count, _ITEM)] = min(first, *timed(sample, size, 0, runs))
        if first > _LONGEST_RUN:
            break
    return row
