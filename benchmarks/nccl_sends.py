"""Fits the time of a NIC for a message of NCCL's sends (gc3/sim/nccl/rates.py) to measured times of an AllToAll.

    python benchmarks/nccl_sends.py ndv4:N=64 tests/data/measured/ndv4_64nodes_alltoall.csv nccl_out_of_place_us \
        nccl_in_place_us

NICs bound such a call, so its time grows with what each message adds, times the messages of a GPU to other nodes. That
makes the fit fast; in the end the call is simulated with the result. The measured times of some sizes differ by a
factor of 3, so the absolute logarithms are minimized and not their squares.
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
from gc3.sim.nccl import sends
from gc3.sim.nccl.baseline import Nccl

EVALUATIONS = 200
SPLITS = 5


@dataclass(frozen=True)
class Case:
    """A measured call: S in bytes, seconds, and its time if a message takes a NIC nothing besides its steps."""

    size: int
    seconds: float
    least: float


def predicted(case: Case, messages: int, ranks: int, step: int, peer_s: float, first_step_s: float) -> float:
    """Returns the seconds of a call."""
    return case.least + messages * (peer_s + first_step_s * min(case.size / ranks / step, 1.0))


def main() -> None:
    """Fits and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("machine")
    parser.add_argument("path")
    parser.add_argument("columns", nargs="+")
    given = parser.parse_args()
    nccl = Nccl(platform(given.machine), "alltoall")
    topology = nccl.on.topology
    ranks, step = topology.rank_count, sends.step_bytes(topology.node_count)
    messages = ranks - ranks // topology.node_count
    nothing = nccl.with_rates(replace(nccl.rates, peer_s=0.0, first_step_s=0.0))
    measured = {column: dict(calibrate.read_csv(given.path, column)) for column in given.columns}
    sizes = sorted(measured[given.columns[0]])
    least = {size: p.time_s for size in sizes if (p := nothing.run(size)) is not None}
    cases = [Case(size, times[size], least[size]) for size in sizes for times in measured.values()]

    def error(fitted: Sequence[float], over: Sequence[Case]) -> float:
        times = [predicted(c, messages, ranks, step, *fitted) for c in over]
        return statistics.fmean(abs(math.log(t / c.seconds)) for t, c in zip(times, over, strict=True))

    def fit(over: Sequence[Case]) -> list[float]:
        start = (nccl.rates.peer_s, nccl.rates.first_step_s)

        def scaled(logs: Sequence[float]) -> list[float]:
            return [s * math.exp(max(-3.0, min(3.0, x))) for s, x in zip(start, logs, strict=True)]

        return scaled(minimize(lambda logs: error(scaled(logs), over), [0.0, 0.0], evaluations=EVALUATIONS).place)

    draw = random.Random(1)  # noqa: S311  not a secret
    held_out: list[float] = []
    for _ in range(SPLITS):
        chosen = set(draw.sample(sizes, len(sizes) // 2))
        held_out.append(error(fit([c for c in cases if c.size in chosen]), [c for c in cases if c.size not in chosen]))
    peer_s, first_step_s = fit(cases)
    print(f"peer_s {peer_s:.3g}, first_step_s {first_step_s:.3g}")
    final = nccl.with_rates(replace(nccl.rates, peer_s=peer_s, first_step_s=first_step_s))
    found = {size: p.time_s for size in sizes if (p := final.run(size)) is not None}
    misses = [math.log(found[c.size] / c.seconds) for c in cases]
    print(
        f"|log error| mean {statistics.fmean(map(abs, misses)):.3f}, median {statistics.median(map(abs, misses)):.3f}; "
        f"mean held out {statistics.fmean(held_out):.3f} ({', '.join(f'{x:.3f}' for x in held_out)})"
    )
    for case, miss in zip(cases, misses, strict=True):
        print(f"{case.size:>12} {1e6 * case.seconds:>10.0f} us measured, {100 * math.expm1(miss):>+6.1f}%")


if __name__ == "__main__":
    main()
