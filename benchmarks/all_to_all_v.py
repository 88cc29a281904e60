"""Compares all_to_all_v with MPI_Alltoallv in every setting of Open MPI that `versus.py` tries.

    make build && cmake --build build/release --target libgc3.a
    python benchmarks/all_to_all_v.py --ranks 8

Each run of benchmarks/all_to_all_v.cc has both libraries in turn in the same processes. The best setting of Open MPI
counts for each size, and gc3's median over the runs.
"""

from __future__ import annotations

import argparse
import math
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from peers import beside, libraries


def main() -> int:
    """Runs the settings and prints each size with the best one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--openmpi", type=Path, default=libraries.ENVIRONMENTS / "openmpi", help="its installation")
    parser.add_argument("--seconds", type=float, default=300, help="for each setting")
    options = parser.parse_args()
    mpi = beside.open_mpi(options.openmpi)
    if mpi is None:
        return 1
    best: dict[int, tuple[float, str]] = {}
    ours: dict[int, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        programs = Path(folder) / "programs"
        gc3 = Path(sys.executable).with_name("gc3")
        subprocess.run([str(gc3), "table", "export", "-o", str(programs)], check=True, stdout=subprocess.DEVNULL)
        runs = beside.rows(mpi, "all_to_all_v.cc", options.ranks, Path(folder), options.seconds, programs)
        for name, rows in runs:
            found = {int(size): (float(a), float(b)) for size, a, b, _ in rows}
            gain = math.exp(statistics.fmean(math.log(b / a) for a, b in found.values()))
            print(f"{name}: {gain:.2f} times", flush=True)
            for size, (a, b) in found.items():
                ours.setdefault(size, []).append(a)
                best[size] = min(best.get(size, (math.inf, "")), (b, name))
    if not best:
        return 1
    print(f"{'bytes':>10} {'gc3 us':>12} {'MPI us':>12} {'MPI/gc3':>8}  setting")
    gains: list[float] = []
    for size, (b, name) in sorted(best.items()):
        a = statistics.median(ours[size])
        gains.append(math.log(b / a))
        print(f"{size:>10} {a:>12.2f} {b:>12.2f} {b / a:>8.2f}  {name}")
    print(f"geometric mean: {math.exp(statistics.fmean(gains)):.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
