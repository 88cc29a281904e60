"""Compares sends and receives between 2 ranks with every setting of Open MPI that `versus.py` tries, and with MPICH.

    make build && cmake --build build/release --target libgc3.a
    python benchmarks/point_to_point.py

Each run of benchmarks/point_to_point.cc has both libraries in turn in the same processes. For each size the setting
counts in which MPI was fastest beside gc3 in the same run: the speed of a run depends on the cores that the ranks get,
so times of different runs are not compared.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import tempfile
from pathlib import Path

from peers import beside, libraries

_RANKS = 2


def main() -> int:
    """Runs the settings and prints each size with the best ones."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("openmpi", "mpich"):
        parser.add_argument(f"--{name}", type=Path, default=libraries.ENVIRONMENTS / name, help="its installation")
    parser.add_argument("--seconds", type=float, default=60, help="for each setting")
    options = parser.parse_args()
    found = [beside.open_mpi(options.openmpi), beside.mpich(options.mpich)]
    # By size and by what is measured, latency and bandwidth: MPI's time by gc3's, gc3's value and the setting.
    worst: dict[int, list[tuple[float, float, str]]] = {}
    for mpi in found:
        if mpi is None:
            continue
        with tempfile.TemporaryDirectory() as folder:
            runs = beside.rows(mpi, "point_to_point.cc", _RANKS, Path(folder), options.seconds, Path(folder))
            for name, rows in runs:
                print(name, flush=True)
                for size, us, mpi_us, _, rate, mpi_rate, _ in rows:
                    both = (
                        (float(mpi_us) / float(us), float(us), name),
                        (float(rate) / float(mpi_rate), float(rate), name),
                    )
                    old = worst.setdefault(int(size), list(both))
                    worst[int(size)] = [min(pair) for pair in zip(old, both, strict=True)]
    if not worst:
        return 1
    print(f"{'bytes':>10} {'gc3 us':>10} {'MPI/gc3':>8}  {'setting':<28} {'gc3 MB/s':>9} {'gc3/MPI':>8}  setting")
    for size, ((gain, us, name), (rate_gain, rate, other)) in sorted(worst.items()):
        print(f"{size:>10} {us:>10.3f} {gain:>8.2f}  {name:<28} {rate:>9.0f} {rate_gain:>8.2f}  {other}")
    means = [math.exp(statistics.fmean(math.log(both[i][0]) for both in worst.values())) for i in (0, 1)]
    print(f"geometric means: latency {means[0]:.2f}, bandwidth {means[1]:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
