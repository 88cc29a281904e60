"""Fits NCCL's rates (gc3/sim/nccl/rates.py) to measured times of NCCL, and reports the error on held-out halves.

    python benchmarks/nccl_rates.py TOPOLOGY FILE.csv:COLUMN:COLLECTIVE... [--nodes N]

The columns are as for `gc3 sim calibrate`: bytes, and times in microseconds.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gc3.sim import platform
from gc3.sim.fit import calibrate
from gc3.sim.fit.minimize import minimize
from gc3.sim.nccl import rates
from gc3.sim.nccl.baseline import Nccl
from gc3.sim.nccl.rates import Rates
from gc3.topologies import load

# Of Simple nothing is fitted: rings of large messages are the links', and two sizes are left to tell the rest. Its rate
# is NCCL's own constant or that of the preset, and its hop of 6 us from "Demystifying NCCL" (arXiv 2507.04786).
FITTED = ("LL", "LL128")
PRIOR = 0.002  # as in gc3.sim.fit.calibrate
EVALUATIONS = 400
SPLITS = 5


@dataclass(frozen=True)
class Case:
    """A measured call: NCCL's choice, S in bytes, seconds."""

    nccl: Nccl
    size: int
    seconds: float


def scaled(base: Rates, logs: Sequence[float]) -> Rates:
    """Returns rates whose parameters are those of `base` times exp(logs)."""
    factors = [math.exp(max(-4.0, min(4.0, x))) for x in logs]
    rate = dict(base.rate) | {p: base.rate[p] * f for p, f in zip(FITTED, factors[:2], strict=True)}
    hop = dict(base.hop_s) | {p: base.hop_s[p] * f for p, f in zip(FITTED, factors[2:4], strict=True)}
    launch, channel = base.launch_s * factors[4], base.channel_s * factors[5]
    return replace(base, rate=rate, hop_s=hop, launch_s=launch, channel_s=channel)


def misses(candidate: Rates, cases: Sequence[Case]) -> list[float]:
    """Returns the logarithm of predicted over measured time of each case."""
    found = [case.nccl.with_rates(candidate).run(case.size) for case in cases]
    return [math.log(p.time_s / case.seconds) for p, case in zip(found, cases, strict=True) if p is not None]


def fit(base: Rates, cases: Sequence[Case]) -> Rates:
    """Returns the rates that fit the cases of the fitted protocols best, by least squares of logarithms."""
    fitted = [case for case in cases if (choice := case.nccl.choice(case.size)) and choice.protocol in FITTED]

    def cost(logs: Sequence[float]) -> float:
        squares = statistics.fmean(x * x for x in misses(scaled(base, logs), fitted))
        return squares + PRIOR * statistics.fmean(x * x for x in logs)

    found = minimize(cost, [0.0] * 6, evaluations=EVALUATIONS)
    return scaled(base, minimize(cost, found.place, evaluations=EVALUATIONS // 2).place)


def error(found: Rates, cases: Sequence[Case]) -> float:
    """Returns the mean absolute logarithm of predicted over measured time."""
    return statistics.fmean(abs(x) for x in misses(found, cases))


def main() -> None:
    """Fits and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("topology")
    parser.add_argument("data", nargs="+", metavar="FILE.csv:COLUMN:COLLECTIVE")
    parser.add_argument("--nodes", type=int, default=1)
    given = parser.parse_args()
    on = platform(load(given.topology, N=given.nodes))
    cases: list[Case] = []
    for text in given.data:
        path, column, collective = text.split(":")
        nccl = Nccl(on, collective)
        cases += [Case(nccl, size, time) for size, time in calibrate.read_csv(path, column)]
    base = rates.of(cases[0].nccl.graph)
    draw = random.Random(1)  # noqa: S311  not a secret
    held_out: list[float] = []
    for _ in range(SPLITS):
        chosen = set(draw.sample(range(len(cases)), len(cases) // 2))
        half = [c for i, c in enumerate(cases) if i in chosen]
        held_out.append(error(fit(base, half), [c for i, c in enumerate(cases) if i not in chosen]))
    final = fit(base, cases)
    print(
        f"mean |log error| {error(final, cases):.3f} in sample, {statistics.fmean(held_out):.3f} held out: {held_out}"
    )
    print(f"rate {dict(final.rate)}\nhop_s {dict(final.hop_s)}")
    print(f"launch_s {final.launch_s}\nchannel_s {final.channel_s}")
    for case, miss in zip(cases, misses(final, cases), strict=True):
        print(f"{case.size:>12} {1e6 * case.seconds:>10.2f} us measured, {100 * (math.exp(miss) - 1):>+6.1f}%")


if __name__ == "__main__":
    main()
