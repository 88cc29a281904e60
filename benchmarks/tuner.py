"""How near the simulator's tuner comes to the fastest program of its whole space: `python benchmarks/tuner.py`.

Prints for each size the time of the best program of the space, which it finds by simulating all of them, that of the
tuner's program, and the number of the tuner's simulations. It leaves out programs whose busiest link alone takes longer
than the best so far.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time

from gc3 import errors, sim
from gc3.cli.machine import load_machine
from gc3.sim.nccl import Nccl
from gc3.tune import Search


def compare(machine: str, nodes: int, collective: str, sizes: list[int]) -> list[float]:
    """Prints the table for a collective on a machine; returns the ratios of the times."""
    on = sim.platform(load_machine(machine, nodes if nodes > 1 else None))
    ranks = on.topology.rank_count
    search, brute = (Search(collective, on, ranks, in_place=collective == "broadcast") for _ in range(2))
    began = time.perf_counter()
    found = {size: search.fastest(size) for size in sizes}
    took = time.perf_counter() - began
    try:
        nccl: Nccl | None = Nccl(on, collective)
    except errors.UserError:
        nccl = None
    space = list(brute.space())
    print(f"# {machine}, {nodes} nodes, {collective}: {len(space)} programs; the tuner took {took:.1f} s")
    print(f"# {'size':>10} {'best':>10} {'tuned':>10} {'ratio':>6} {'tried':>5} {'NCCL':>10}")
    ratios: list[float] = []
    for size in sizes:
        best = math.inf
        for spec in space:
            best = min(best, brute.seconds(spec, size, below=best))
        (spec, tuned), *_ = found[size][0]
        ratios.append(tuned / best)
        other = f"{1e6 * nccl(size).time_s:10.2f}" if nccl else " " * 10
        print(f"{size:>12} {1e6 * best:10.2f} {1e6 * tuned:10.2f} {ratios[-1]:6.3f} {found[size][1]:5} {other}  {spec}")
    return ratios


def main() -> None:
    """Compares for the collectives and machines of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--machines", default="ndv4,ndv5,mi300x")
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--collectives", default="allreduce,allgather,alltoall,reducescatter")
    parser.add_argument("--sizes", type=int, default=11, help="number of sizes from 1 KiB on, each four times the last")
    given = parser.parse_args()
    sizes = [1 << (10 + 2 * k) for k in range(given.sizes)]
    ratios: list[float] = []
    for machine in given.machines.split(","):
        for collective in given.collectives.split(","):
            ratios += compare(machine, given.nodes, collective, sizes)
            sys.stdout.flush()
    print(f"median {statistics.median(ratios):.4f}, worst {max(ratios):.4f} of {len(ratios)} points")


if __name__ == "__main__":
    main()
