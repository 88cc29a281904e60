"""The CPU engines as machines: ranks that share a few processors, and memory between them.

There are no links here. The simulated times are the work of threadblocks, one after the other on the processor of their
rank, the time until another processor sees a message, and switches between ranks that share a processor.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from gc3 import _core, datatypes, topologies
from gc3.runtime import kept_files
from gc3.runtime.measure import machine
from gc3.sim import preset_file, settings
from gc3.sim.fit import calibrate
from gc3.sim.fit.calibrate import Case
from gc3.sim.fit.least_squares import least_squares
from gc3.sim.nccl.baseline import Nccl
from gc3.sim.parameters import Evidence, Parameters, ProtocolParameters, Scope, opcode_factors
from gc3.sim.platform import Platform
from gc3.sim.presets import kept_name
from gc3.sim.trust import spread

ENGINES = ("threads", "processes")
# The fitted parameters; the layout of the FIFOs is the engine's own.
FITTED = (
    *("launch", "Simple.rate", "LL.rate", "LL128.rate", "*.hop"),
    *("Simple.op", "LL.op", "LL128.op", "core.switch", "cache.bytes", "cache.slowdown"),
    *(f"*.{opcode}" for opcode in opcode_factors()),
)
_LEAST_LOAN = 32 << 10  # assumed where nothing was measured, with fewer cores than ranks: docs/processes.md
MOST_RANKS = 8  # of the programs measured
# A fit: its weight of the start, the error above which measurements count less, and its steps.
_PRIOR, _DISTURBED = 0.002, 0.3
STEPS = 15
_APART = 0.05  # two programs have an order if their measured times differ by more than this part


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


def start(engine: str, cores: int, thresholds: Mapping[str, int | None] | None = None) -> Parameters:
    """Returns the start of a fit: the engines' default FIFOs and round numbers.

    `thresholds`: of processes, what they have measured when they met; None: it is not known.
    """
    simple = _protocol(5e9, 128 << 10, lines=False)
    if engine == "processes":
        known = thresholds or {"read_moved": _LEAST_LOAN, "read_combined": _LEAST_LOAN}
        moved, combined = (known[name] or 0 for name in ("read_moved", "read_combined"))
        simple = replace(simple, lend_bytes=moved, lend_combined_bytes=combined, lend_rate=5e9)
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


def probed(ranks: int) -> dict[str, int | None]:
    """Returns the thresholds that so many processes have measured on this machine and kept; none: there are none."""
    folder = kept_files.folder()
    return _core.kept_thresholds(str(folder), ranks) if folder else {}


@dataclass(frozen=True, slots=True)
class SizeError:
    """How good predictions are at a size, or at all sizes."""

    size: int  # S in bytes, rounded to a power of two; 0: all
    cases: int  # the number of measurements
    median: float  # the median of |predicted / measured - 1|
    # the part of the pairs of programs of the same collective and ranks, measured more than 5 % apart, that are
    # predicted in the right order; None: there are none
    ordered: float | None


@dataclass(frozen=True, slots=True)
class CpuFit:
    """An engine of this machine, calibrated."""

    parameters: Parameters  # the preset; its held-out error is that on programs the fit has not seen
    trained: tuple[Case, ...]  # the measurements in the fit
    unseen: tuple[Case, ...]  # the measurements outside the fit
    before: tuple[SizeError, ...]  # the errors on the latter of the preset that gc3 brings
    errors: tuple[SizeError, ...]  # those of this one, by size, and of all sizes at the end


def fit(
    engine: str,
    first: Parameters,
    trained: Sequence[Case],
    unseen: Sequence[Case],
    shipped: Parameters,
    *,
    steps: int = STEPS,
    begin: Callable[[str], None] = lambda _: None,
    ends: Callable[[], bool] = lambda: False,
) -> CpuFit:
    """Fits the parameters of an engine to measurements, and computes the error on programs outside the fit.

    Args:
        engine: Its name.
        first: The start.
        trained: What is fitted.
        unseen: What is predicted.
        shipped: The preset to compare with.
        steps: Most steps of the fit.
        begin: Called with the number of each before it.
        ends: Asked before each step whether it is left out.
    """
    on = platform(MOST_RANKS, first)
    # If no message is lent, the rate of lending cannot be fitted.
    lends = any(timing.lend_bytes or timing.lend_combined_bytes for timing in first.protocols.values())
    names = (*FITTED, "Simple.lend_rate") if lends else FITTED
    values = [settings.get(on, name) for name in names]

    def scaled(logs: Sequence[float]) -> Platform:
        factors = [math.exp(max(-5.0, min(5.0, x))) for x in logs]
        return settings.apply(on, [settings.Setting(n, v * f) for n, v, f in zip(names, values, factors, strict=True)])

    def misses(logs: Sequence[float]) -> list[float]:
        times = calibrate.predictions(scaled(logs), trained)
        return [math.log(t / case.seconds) for t, case in zip(times, trained, strict=True)]

    at_start = [0.0] * len(names)
    found = least_squares(misses, at_start, prior=_PRIOR, limit=_DISTURBED, steps=steps, begin=begin, ends=ends)
    fitted = scaled(found)
    about = machine()
    source = (
        f"{engine} on {about['cores']} cores of {about['cpu']}, gc3 {_core.VERSION}, measured "
        f"{time.strftime('%Y-%m-%d', time.gmtime())}"
    )
    found_unseen = calibrate.misses(fitted, unseen)
    errors = calibrate.error(fitted, trained), statistics.fmean(found_unseen)
    evidence = Evidence(source, *errors, scope_of([*trained, *unseen]), *spread(found_unseen))
    result = replace(fitted.parameters, name=kept_name(engine), evidence=evidence)
    return CpuFit(result, tuple(trained), tuple(unseen), quality(shipped, unseen), quality(result, unseen))


def scope_of(cases: Sequence[Case]) -> Scope:
    """Returns what measurements of programs cover."""
    models = [(_model(case), case.size) for case in cases]
    sizes: dict[str, tuple[int, int]] = {}
    for model, size in models:
        low, high = sizes.get(model.name, (size, size))
        # Sizes are rounded down to whole elements in every block.
        sizes[model.name] = min(low, _power(size)), max(high, _power(size))
    ranks = [model.ranks for model, _ in models]
    return Scope((min(ranks), max(ranks)), datatypes.FORMATS, sizes)


def quality(parameters: Parameters, cases: Sequence[Case]) -> tuple[SizeError, ...]:
    """Returns how good the predictions of a preset are, by size, and for all sizes at the end."""
    times = calibrate.predictions(platform(MOST_RANKS, parameters), cases)
    sizes = sorted({_power(case.size) for case in cases})
    both = list(zip(cases, times, strict=True))
    return tuple(
        _quality(size, [(case, t) for case, t in both if size in (0, _power(case.size))]) for size in (*sizes, 0)
    )


def _quality(size: int, both: Sequence[tuple[Case, float]]) -> SizeError:
    median = statistics.median(abs(t / case.seconds - 1) for case, t in both)
    pairs = [
        (one.seconds < other.seconds) == (t < u)
        for (one, t), (other, u) in combinations(both, 2)
        if _alike(one, other) and abs(one.seconds - other.seconds) > _APART * min(one.seconds, other.seconds)
    ]
    return SizeError(size, len(both), median, statistics.fmean(pairs) if pairs else None)


def _alike(one: Case, other: Case) -> bool:
    first, second = _model(one), _model(other)
    return (first.name, first.ranks, _power(one.size)) == (second.name, second.ranks, _power(other.size))


def _model(case: Case) -> _core.Collective:
    if isinstance(case.program, Nccl):
        raise TypeError("NCCL does not run on processors")
    return case.program.core.collective


def _power(size: int) -> int:
    """The power of two that a size was rounded down from."""
    return 1 << max(size - 1, 0).bit_length()


def keep(engine: str, parameters: Parameters) -> str | None:
    """Keeps the preset for this machine; returns the file, or None if nothing is kept."""
    path = kept_files.path(kept_name(engine))
    if path is None:
        return None
    kept_files.write(path, preset_file.dumps(parameters))
    return str(path)
