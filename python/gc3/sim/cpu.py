"""The CPU engines as machines: ranks that share a few processors, and memory between them.

There are no links here. The simulated times are the work of threadblocks, one after the other on the processor of their
rank, the time until another processor sees a message, and switches between ranks that share a processor.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

from gc3 import algorithms, collectives, datatypes, lang, topologies
from gc3.runtime import measure
from gc3.runtime.measure import Timer
from gc3.runtime.program import Program
from gc3.sim import calibrate
from gc3.sim.calibrate import Case
from gc3.sim.parameters import Evidence, Parameters, ProtocolParameters, opcode_factors
from gc3.sim.platform import Platform

ENGINES = ("threads", "processes")
# The fitted parameters; the layout of the FIFOs is the engine's own.
FITTED = (
    *("launch", "Simple.rate", "LL.rate", "LL128.rate", "*.hop"),
    *("Simple.op", "LL.op", "LL128.op", "core.switch", "cache.bytes", "cache.slowdown"),
    *(f"*.{opcode}" for opcode in opcode_factors()),
)
_LEAST_LOAN = 32 << 10  # with fewer cores than ranks: docs/processes.md
_ITEM = 4
MOST_RANKS = 8  # of the programs measured


def _protocol(rate: float, slot_bytes: int, *, lines: bool) -> ProtocolParameters:
    factors = opcode_factors(1.0, 0.7, 0.7, 0.5)
    return ProtocolParameters(
        rate,
        1.0,
        1.0,
        op_s=0.3e-6,
        hop_s=0.3e-6,
        network_hop_s=0.3e-6,
        slot_bytes=slot_bytes,
        slots=8,
        cut_through=lines,
        line_bytes=240 if lines else 0,
        factors=factors,
    )


def start(engine: str, cores: int) -> Parameters:
    """Returns the start of a fit: the engines' default FIFOs and round numbers."""
    simple = _protocol(5e9, 128 << 10, lines=False)
    if engine == "processes":
        simple = replace(simple, lend_bytes=_LEAST_LOAN, lend_rate=5e9)
    protocols = {
        "Simple": simple,
        "LL": _protocol(2e9, 32 << 10, lines=True),
        "LL128": _protocol(3e9, 122_880, lines=True),
    }
    return Parameters(
        f"cpu-{engine}",
        protocols,
        5e-6,
        Evidence("round numbers"),
        staged_network=False,
        cores=cores,
        cores_dealt=engine == "processes",
        core_switch_s=1e-6,
        cache_bytes=8 << 20,
        cache_slowdown=2.0,
    )


def platform(ranks: int, parameters: Parameters) -> Platform:
    """Returns a machine of `ranks` ranks on the processors that the parameters name."""
    return Platform(topologies.load("cpu", R=ranks), parameters)


@dataclass(frozen=True, slots=True)
class Sample:
    """A program to measure: an algorithm with its parameters, and how it is compiled."""

    algorithm: str
    protocol: str
    parameters: tuple[tuple[str, int], ...]
    instances: int = 1

    def compile(self) -> Program:
        """Returns the program."""
        chosen = algorithms.load(self.algorithm)
        given: dict[str, Any] = dict(self.parameters)
        return lang.compile(chosen, protocol=self.protocol, instances=self.instances, **given)


def _samples(names: Sequence[tuple[str, dict[str, int]]], protocols: Sequence[str]) -> tuple[Sample, ...]:
    return tuple(Sample(name, protocol, tuple(given.items())) for name, given in names for protocol in protocols)


# Always fitted: each kind of work, few and many threadblocks, 2 to 8 ranks.
_BASE = (
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
TRAINING = _samples([*_BASE, *(f for k, f in enumerate(_DRAWN) if k in _FITTED_TOO)], datatypes.PROTOCOLS)
UNSEEN = _samples([f for k, f in enumerate(_DRAWN) if k not in _FITTED_TOO], datatypes.PROTOCOLS)
SIZES = tuple(1 << k for k in range(10, 24, 2))  # 1 KiB to 4 MiB
TURNS = 3


def measured(
    samples: Sequence[Sample],
    timing: Callable[[], AbstractContextManager[Timer]],
    *,
    sizes: Sequence[int] = SIZES,
    iterations: int = 40,
    turns: int = TURNS,
    begin: Callable[[str], None] = lambda _: None,
) -> list[Case]:
    """Returns the time of each sample at each size on an engine of this machine: that of the fastest run.

    Slower runs are affected by other work of the machine and by the placement of threads on processors, which lasts for
    a while. Hence there are several turns, each through all samples.

    Args:
        samples: The programs to run.
        timing: Opens the engine, for one sample in one turn.
        sizes: S in bytes.
        iterations: Timed runs of each in a turn, after a quarter as many to warm up; a third of that from 1 MiB on.
        turns: Through the samples.
        begin: Called with the name of each before it runs.
    """
    programs = [sample.compile() for sample in samples]
    fastest: list[dict[int, float]] = [{} for _ in samples]
    for _ in range(turns):
        for sample, program, found in zip(samples, programs, fastest, strict=True):
            begin(f"{sample.algorithm} {sample.protocol}")
            with timing() as timer:
                for size in sizes:
                    runs = max(iterations if size < 1 << 20 else iterations // 3, 1)
                    count = max(collectives.count_for(program.collective, size, _ITEM), 1)
                    row = measure.measure(
                        program, count, warmup=iterations // 4, iterations=runs, check=False, timer=timer
                    )
                    actual = collectives.size_for(program.collective, count, _ITEM)
                    found[actual] = min(row.min_us, found.get(actual, row.min_us))
    return [
        Case(program, size, us * 1e-6)
        for program, found in zip(programs, fastest, strict=True)
        for size, us in found.items()
    ]


@dataclass(frozen=True, slots=True)
class CpuFit:
    """An engine of this machine, calibrated.

    Attributes:
        parameters: The preset; its held-out error is that on programs the fit has not seen.
        trained: The measurements in the fit.
        unseen: The measurements outside the fit.
        median_error: The median of |predicted / measured - 1| on the latter.
    """

    parameters: Parameters
    trained: tuple[Case, ...]
    unseen: tuple[Case, ...]
    median_error: float


def fit(
    parameters: Parameters, trained: Sequence[Case], unseen: Sequence[Case], *, source: str, evaluations: int = 500
) -> CpuFit:
    """Fits the parameters of an engine to measurements, and computes the error on programs outside the fit."""
    # If no message is lent, the rate of lending cannot be fitted.
    lends = any(timing.lend_bytes for timing in parameters.protocols.values())
    names = (*FITTED, "Simple.lend_rate") if lends else FITTED
    fitted = calibrate.fit_once(platform(MOST_RANKS, parameters), trained, names, evaluations=evaluations)
    evidence = Evidence(source, calibrate.error(fitted, trained), calibrate.error(fitted, unseen))
    result = replace(fitted.parameters, evidence=evidence)
    return CpuFit(result, tuple(trained), tuple(unseen), median_error(result, unseen))


def median_error(parameters: Parameters, cases: Sequence[Case]) -> float:
    """Returns the median of |predicted / measured - 1|."""
    times = calibrate.predictions(platform(MOST_RANKS, parameters), cases)
    return statistics.median(abs(t / c.seconds - 1) for t, c in zip(times, cases, strict=True))
