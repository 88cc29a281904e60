"""Fits a preset to measurements, and computes the error on measurements outside the fit."""

from __future__ import annotations

import csv
import math
import random
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gc3 import errors
from gc3.sim import settings
from gc3.sim.fit.minimize import minimize
from gc3.sim.nccl.baseline import Nccl
from gc3.sim.parameters import Evidence
from gc3.sim.platform import Platform
from gc3.sim.predict import Compiled, Simulation
from gc3.sim.trust import spread
from gc3.support import files
from gc3.topologies.model import Topology

# The weight that keeps a parameter which the data does not determine near its initial value: the squared logarithm of
# its change counts this much of a squared logarithmic error.
_PRIOR = 0.002
EVALUATIONS = 400
RESTARTS = 5
_SETTLED = 0.99
_EFFECT = 1e-5  # the least change of a time that counts
SPLITS = 5
_SHORTEST, _LONGEST = 1e-12, 1e6  # seconds of a measurement
_SHOWN = 40  # characters of what is wrong


@dataclass(frozen=True, slots=True)
class Case:
    """A measured call."""

    program: Compiled | Nccl  # what was called: a program, or what NCCL does
    size: int  # S in bytes
    seconds: float  # the measured time
    # where, if that differs from the machine of the fit in its ranks; the classes of its wires are those of the fit
    machine: Topology | None = None


@dataclass(frozen=True, slots=True)
class Fit:
    """A platform fitted to measurements."""

    platform: Platform  # the platform with the fitted parameters; its evidence holds the errors
    before: float  # mean absolute logarithm of predicted over measured time before the fit
    in_sample: float  # the same after the fit, on the same data
    # the same for each split, on what was not fitted: a half of the cases, or those of a number of nodes
    held_out: tuple[float, ...]
    values: dict[str, float]  # the fitted parameters, in seconds, bytes per second, or plain
    ranges: dict[str, tuple[float, float]]  # the least and the greatest value of each over the splits
    # for each split the number of nodes that was not fitted; empty: random halves were left out
    left_out: tuple[int, ...] = ()
    without_effect: tuple[str, ...] = ()  # those on which no time in the data depends, so that they were not changed


def read_csv(path: str, column: str) -> list[tuple[int, float]]:
    """Returns (S in bytes, seconds) of each row: the columns "bytes" and `column`, the latter in microseconds.

    Lines that start with # are comments; rows without a value are left out.

    Raises:
        gc3.UserError: The file cannot be read or has no such columns.
    """
    text = files.read_text(path, "BadMeasurements")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    found: list[tuple[int, float]] = []
    try:
        for row in csv.DictReader(lines):
            if "bytes" not in row or column not in row:
                known = ", ".join(str(key) for key in row)
                raise errors.error("BadMeasurements", f"'{path}' has no columns bytes and {column}; it has {known}")
            if None in row:
                raise errors.error(
                    "BadMeasurements", f"'{path}': more cells than columns: {','.join(map(str, row.values()))[:_SHOWN]}"
                )
            if row[column]:
                found.append(_point(path, row["bytes"] or "", row[column]))
    except csv.Error as problem:
        raise errors.error("BadMeasurements", f"'{path}' is not CSV: {problem}") from None
    if not found:
        raise errors.error("BadMeasurements", f"'{path}' has no rows")
    return found


def _point(path: str, size: str, microseconds: str) -> tuple[int, float]:
    told = f"'{path}': bytes {size[:_SHOWN]!r}, time {microseconds[:_SHOWN]!r}"
    if not re.fullmatch(r" *[0-9]{1,18} *", size):
        raise errors.error("BadMeasurements", f"{told}: a size is a whole number of bytes")
    try:
        time = float(microseconds.replace("_", "x")) * 1e-6  # Python reads 1_0 as 10
    except ValueError:
        time = math.nan
    if not _SHORTEST <= time <= _LONGEST:
        raise errors.error("BadMeasurements", f"{told}: a time is a number of microseconds above 0")
    return int(size), time


def predictions(on: Platform, cases: Sequence[Case]) -> list[float]:
    """Returns the predicted seconds of each case."""
    wired: dict[tuple[int, int], Simulation | Nccl] = {}
    known: dict[tuple[int, int, int], float] = {}  # a call may have been measured more than once
    for case in cases:
        key = id(case.program), id(case.machine)
        if key not in wired:
            there = _placed(on, case.machine)
            program = case.program
            wired[key] = program.with_rates(on=there) if isinstance(program, Nccl) else Simulation(program, there)
        if (*key, case.size) in known:
            continue
        found = wired[key].run(case.size)
        if found is None or found.time_s <= 0:
            what = "what NCCL does is too large to simulate" if found is None else "the parameters predict no time"
            raise errors.error("BadMeasurements", f"{what} at {case.size} B: leave this size out")
        known[(*key, case.size)] = found.time_s
    return [known[id(case.program), id(case.machine), case.size] for case in cases]


def _placed(on: Platform, machine: Topology | None) -> Platform:
    """Another machine with the parameters of a platform."""
    if machine is None:
        return on
    fitted = {c.name: c for c in on.topology.classes}
    classes = tuple(fitted.get(c.name, c) for c in machine.classes)
    return replace(on, topology=replace(machine, classes=classes))


def misses(on: Platform, cases: Sequence[Case]) -> list[float]:
    """Returns the absolute logarithm of predicted over measured time of each case: 0.1 is about 10 %."""
    return [abs(math.log(t / c.seconds)) for t, c in zip(predictions(on, cases), cases, strict=True)]


def error(on: Platform, cases: Sequence[Case]) -> float:
    """Returns the mean of `misses`."""
    return statistics.fmean(misses(on, cases))


def fit_once(
    on: Platform,
    cases: Sequence[Case],
    names: Sequence[str],
    *,
    evaluations: int = EVALUATIONS,
    restarts: int = RESTARTS,
) -> Platform:
    """Returns the platform with the named parameters fitted to the cases, by least squares of logarithms."""
    start = [settings.get(on, name) for name in names]
    for name, value in zip(names, start, strict=True):
        if value <= 0:
            raise errors.error("BadSimulation", f"'{name}' is {value}: only what is above 0 can be fitted")

    def with_factors(logs: Sequence[float]) -> Platform:
        values = [value * math.exp(max(-5.0, min(5.0, x))) for value, x in zip(start, logs, strict=True)]
        # An efficiency is at most 1.
        most = [1.0 if name.endswith("efficiency") else math.inf for name in names]
        return settings.apply(on, [settings.Setting(*new) for new in zip(names, map(min, values, most), strict=True)])

    def cost(logs: Sequence[float]) -> float:
        times = predictions(with_factors(logs), cases)
        misses = statistics.fmean(math.log(t / c.seconds) ** 2 for t, c in zip(times, cases, strict=True))
        return misses + _PRIOR * statistics.fmean(x * x for x in logs)

    found = minimize(cost, [0.0] * len(names), evaluations=evaluations)
    # Restart from there: a simplex in many dimensions can collapse before it converges.
    for _ in range(restarts):
        before = found.value
        found = minimize(cost, found.place, evaluations=evaluations)
        if found.value > _SETTLED * before:
            break
    return with_factors(found.place)


def fit(
    on: Platform,
    cases: Sequence[Case],
    names: Sequence[str],
    *,
    source: str,
    splits: int = SPLITS,
    seed: int = 1,
    evaluations: int = EVALUATIONS,
    restarts: int = RESTARTS,
) -> Fit:
    """Fits parameters to measurements and finds the error on held-out ones.

    For each split a random half of the cases is fitted and the other half predicted. If the cases are of machines of
    several numbers of nodes, those of one number of nodes are predicted in each split instead, and the others fitted.
    The result is fitted to all.

    Args:
        on: The platform to start from.
        cases: The measurements.
        names: The parameters to fit: see `gc3.sim.settings`.
        source: Where the measurements come from.
        splits: How many halves to hold out; for several numbers of nodes there is one split for each.
        seed: Seed of the splits.
        evaluations: Approximate number of simulations of all cases before a fit restarts from its current point.
        restarts: Largest number of restarts.

    Raises:
        gc3.UserError: There are fewer than four cases, or a parameter cannot be fitted.
    """
    if len(cases) < 4:  # noqa: PLR2004  two to fit and two to predict
        raise errors.error("BadMeasurements", f"{len(cases)} measurements: a fit with held-out data needs at least 4")
    nodes = [(case.machine or on.topology).node_count for case in cases]
    left_out = tuple(sorted(set(nodes))) if len(set(nodes)) > 1 else ()
    draw = random.Random(seed)  # noqa: S311  not a secret
    held_out: list[float] = []
    every: list[float] = []
    seen: dict[str, list[float]] = {name: [] for name in names}
    for split in left_out or range(splits):
        if left_out:
            chosen = {i for i, count in enumerate(nodes) if count != split}
        else:
            chosen = set(draw.sample(range(len(cases)), len(cases) // 2))
        half = [c for i, c in enumerate(cases) if i in chosen]
        rest = [c for i, c in enumerate(cases) if i not in chosen]
        fitted = fit_once(on, half, names, evaluations=evaluations, restarts=restarts)
        every += (found := misses(fitted, rest))
        held_out.append(statistics.fmean(found))
        for name in names:
            seen[name].append(settings.get(fitted, name))
    final = fit_once(on, cases, names, evaluations=evaluations, restarts=restarts)
    in_sample = error(final, cases)
    evidence = Evidence(source, in_sample, statistics.fmean(held_out), None, *spread(every))
    return Fit(
        replace(final, parameters=replace(final.parameters, evidence=evidence)),
        error(on, cases),
        in_sample,
        tuple(held_out),
        {name: settings.get(final, name) for name in names},
        {name: (min(values), max(values)) for name, values in seen.items()},
        left_out,
        tuple(name for name in names if not _matters(final, cases, name)),
    )


def _matters(on: Platform, cases: Sequence[Case], name: str) -> bool:
    """Whether any prediction changes if a parameter is 5 % lower, or half of a small whole number."""
    lower = settings.apply(on, [settings.Setting(name, 0.95, relative=True)])
    if settings.get(lower, name) == settings.get(on, name):
        lower = settings.apply(on, [settings.Setting(name, 0.5, relative=True)])
    both = zip(predictions(on, cases), predictions(lower, cases), strict=True)
    return any(abs(math.log(a / b)) > _EFFECT for a, b in both)
