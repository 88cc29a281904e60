"""Runs a C++ program that measures gc3 and MPI in turn in the same processes, in every setting that `versus.py` tries.

    make build && cmake --build build/release --target libgc3.a
    python benchmarks/in_turn.py point_to_point
    python benchmarks/in_turn.py all_to_all_v --ranks 8

For each size that setting of Open MPI or MPICH counts in which MPI was fastest beside gc3 in the same run: the speed of
a run depends on the cores that the ranks get, so times of different runs are not compared.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from peers import libraries

from gc3.runtime.measure import cores

ROOT = Path(__file__).resolve().parents[1]
RANKS = {"point_to_point": 2, "all_to_all_v": 8}  # the programs
COMPILE_S = 120


def installed(name: str, folder: Path) -> tuple[str, dict[str, str]] | None:
    """Returns the launcher of an MPI library and the environment of its tools; None, and says so, if there is none."""
    own = folder / "bin" / ("mpirun" if name == "openmpi" else "mpiexec.hydra")
    if own.exists():
        more = {"OPAL_PREFIX": str(folder), "LD_LIBRARY_PATH": str(folder / "lib")} if name == "openmpi" else {}
        return str(own), {**os.environ, **more}
    tools = libraries.mpi_tools("openmpi", ("mpirun", "mpicc"), says="open-mpi.org") if name == "openmpi" else None
    if tools is None:
        print(f"no {name}; `make bench-vs` installs it", file=sys.stderr)
        return None
    return tools[0], {**os.environ}


def rows(name: str, source: str, ranks: int, folder: Path, options: argparse.Namespace) -> Iterator[list[str]]:
    """Yields the name of each setting of a library with the words of each line of numbers that the program prints."""
    found = installed(name, getattr(options, name))
    if found is None:
        return
    mpirun, environment = found
    program = str(folder / f"{name}-{source}")
    archives = [str(p) for p in sorted((ROOT / "build" / "release").glob("libgc3*.a"))]
    line = [str(Path(mpirun).with_name("mpicxx")), "-std=c++20", "-O2", f"-I{ROOT / 'cpp'}", "-o", program]
    line += [str(ROOT / f"benchmarks/{source}.cc"), "-Wl,--start-group", *archives, "-Wl,--end-group"]
    subprocess.run([*line, "-lpthread", "-ldl"], check=True, timeout=COMPILE_S, env=environment)
    settings = [libraries.mpich_setting(mpirun, program, apart=False)]
    if name == "openmpi":
        settings = list(libraries.open_mpi_settings(name, mpirun, [program], apart=False))
    for setting in settings:
        if setting.crowded and ranks <= cores():
            continue
        (line,) = setting.start(folder / "programs", ranks)
        try:
            done = subprocess.run(
                line, capture_output=True, text=True, timeout=options.seconds, check=False, env=environment
            )
        except subprocess.TimeoutExpired:
            print(f"{setting.name}: more than {options.seconds:g} s", flush=True)
            continue
        numbers = [words.split() for words in done.stdout.splitlines() if words.lstrip()[:1].isdigit()]
        told = "measured" if numbers else done.stderr.strip()[-300:]
        print(f"{setting.name}: {told}", flush=True)
        yield from ([setting.name, *words] for words in numbers)


def main() -> int:
    """Runs the settings and prints each size with the best one, for latency and, if it is there, bandwidth."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", choices=RANKS)
    parser.add_argument("--ranks", type=int)
    for name in ("openmpi", "mpich"):
        parser.add_argument(f"--{name}", type=Path, default=libraries.ENVIRONMENTS / name, help="its installation")
    parser.add_argument("--seconds", type=float, default=300, help="for each setting")
    options = parser.parse_args()
    # By size and column: how many times better gc3 is, the values of gc3 and of MPI, and the setting.
    worst: dict[tuple[int, int], tuple[float, str, str, str]] = {}
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        export = [str(Path(sys.executable).with_name("gc3")), "table", "export", "-o", str(folder / "programs")]
        subprocess.run(export, check=True, stdout=subprocess.DEVNULL)
        for name in ("openmpi", "mpich"):
            ranks = options.ranks or RANKS[options.program]
            for setting, size, *values in rows(name, options.program, ranks, folder, options):
                for column in range(0, len(values), 3):
                    ours, theirs, gain = values[column : column + 3]
                    known = worst.get((column, int(size)), (math.inf, "", "", ""))
                    worst[column, int(size)] = min(known, (float(gain), ours, theirs, setting))
    for column, what in ((0, "us"), (3, "MB/s")):
        best = {size: row for (at, size), row in sorted(worst.items()) if at == column}
        if best:
            print(f"{'bytes':>10} {'gc3 ' + what:>12} {'MPI ' + what:>12} {'gain':>8}  setting")
            for size, (gain, ours, theirs, setting) in best.items():
                print(f"{size:>10} {ours:>12} {theirs:>12} {gain:>8.2f}  {setting}")
            print(f"geometric mean: {statistics.geometric_mean(row[0] for row in best.values()):.2f}")
    return 0 if worst else 1


if __name__ == "__main__":
    sys.exit(main())
