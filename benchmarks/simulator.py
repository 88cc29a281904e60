"""Times the simulator: slice operations per second on one core.

Run with `python benchmarks/simulator.py`; nothing else should be running.
"""

from __future__ import annotations

import resource
import time
from dataclasses import replace

import gc3
from gc3 import algorithms, sim

_REPEATS = 5
_SIZES = [1 << k for k in range(12, 32)]  # 4 KiB to 2 GiB


def _simulation(
    name: str, machine: str, *, protocol: str = "Simple", instances: int = 1, **given: int
) -> sim.Simulation:
    begin = time.perf_counter()
    program = gc3.compile(algorithms.load(name), protocol=protocol, instances=instances, **given)
    compiled = time.perf_counter()
    on = sim.platform(machine)
    # The direct AllToAll has more threadblocks than a GPU holds; what counts here is how many the simulator copes with.
    made = sim.Simulation(program, replace(on, parameters=replace(on.parameters, threadblocks=0)))
    print(f"{name} on {machine}: compiled {compiled - begin:.2f} s, wired {time.perf_counter() - compiled:.2f} s")
    return made


def _rate(label: str, simulation: sim.Simulation, size: int, goal: float, repeats: int = _REPEATS) -> None:
    best = float("inf")
    for _ in range(repeats):
        begin = time.perf_counter()
        found = simulation.run(size)
        best = min(best, time.perf_counter() - begin)
    rate = found.slice_ops / best / 1e6
    print(f"{label:<44} {found.slice_ops:>9} ops {best:>8.4f} s {rate:>7.2f} M/s  (goal {goal:g})", flush=True)


def main() -> None:
    """Prints the table."""
    ring = {"R": 8, "channels": 4}
    for protocol in ("Simple", "LL", "LL128"):
        made = _simulation("ring_allreduce", "ndv4", protocol=protocol, instances=8, **ring)
        _rate(f"8 GPUs, ring AllReduce, {protocol}, 1 GiB", made, 1 << 30, 8)
    made = _simulation("allpairs_allreduce", "ndv4", protocol="LL", instances=4, R=8, chunks=8)
    _rate("8 GPUs, All Pairs AllReduce, LL, 64 MiB", made, 1 << 26, 8)
    _rate("1024 ranks, ring AllReduce, 4 GiB", _simulation("ring_allreduce", "ndv4:N=128", R=1024), 1 << 32, 5, 2)
    _rate("512 ranks, direct AllToAll, 8 GiB", _simulation("direct_alltoall", "ndv4:N=64", R=512), 1 << 33, 2, 2)
    made = _simulation("two_step_alltoall", "ndv4:N=128", N=128, G=8)
    begin, ops = time.perf_counter(), 0
    for size in _SIZES:
        ops += made.run(size).slice_ops
    took = time.perf_counter() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"1024 ranks, two-step AllToAll, {len(_SIZES)} sizes: {took:.1f} s (goal 60), {ops / took / 1e6:.2f} M/s, "
        f"peak memory of all of the above {peak:.2f} GiB (goal 4)"
    )


if __name__ == "__main__":
    main()
