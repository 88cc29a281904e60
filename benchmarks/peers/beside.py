"""Runs C++ programs that measure gc3 and an MPI library in turn in the same processes, in all settings that compete."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gc3.runtime.measure import cores
from peers import libraries

ROOT = Path(__file__).resolve().parents[2]
_COMPILE_S = 120


@dataclass(frozen=True, slots=True)
class Mpi:
    """An installed MPI library.

    Attributes:
        name: "openmpi" or "mpich".
        mpirun: Its launcher.
        environment: Variables for its compiler and its ranks.
    """

    name: str
    mpirun: str
    environment: dict[str, str]


def open_mpi(folder: Path) -> Mpi | None:
    """Returns Open MPI as installed in `folder`, or else by the system; None, and says so, if there is none."""
    own = folder / "bin" / "mpirun"
    if own.exists():
        more = {"OPAL_PREFIX": str(folder), "LD_LIBRARY_PATH": str(folder / "lib")}
        return Mpi("openmpi", str(own), {**os.environ, **more})
    tools = libraries.mpi_tools("openmpi", ("mpirun", "mpicc"), says="open-mpi.org")
    if tools is None:
        print("no mpirun of Open MPI; `make bench-vs` installs it", file=sys.stderr)
        return None
    return Mpi("openmpi", tools[0], {**os.environ})


def mpich(folder: Path) -> Mpi | None:
    """Returns MPICH as installed in `folder`, if it is there."""
    own = folder / "bin" / "mpiexec.hydra"
    return Mpi("mpich", str(own), {**os.environ}) if own.exists() else None


def _compiled(mpi: Mpi, source: str, folder: Path) -> Path:
    program = folder / f"{mpi.name}-{Path(source).stem}"
    archives = [str(p) for p in sorted((ROOT / "build" / "release").glob("libgc3*.a"))]
    line = [str(Path(mpi.mpirun).with_name("mpicxx")), "-std=c++20", "-O2", f"-I{ROOT / 'cpp'}"]
    line += [str(ROOT / "benchmarks" / source), "-o", str(program), "-Wl,--start-group", *archives, "-Wl,--end-group"]
    subprocess.run([*line, "-lpthread", "-ldl"], check=True, timeout=_COMPILE_S, env=mpi.environment)
    return program


def rows(
    mpi: Mpi, source: str, ranks: int, folder: Path, seconds: float, argument: Path
) -> Iterator[tuple[str, list[list[str]]]]:
    """Yields the name of each setting and the words of the lines of numbers that the program prints.

    Args:
        mpi: The library.
        source: The program in benchmarks/, which is compiled into `folder`.
        ranks: Its number of ranks.
        folder: An existing folder.
        seconds: The longest run of a setting, which is left out then.
        argument: What the program gets.
    """
    program = str(_compiled(mpi, source, folder))
    if mpi.name == "openmpi":
        settings: Sequence[libraries.Setting] = libraries.open_mpi_settings(
            mpi.name, mpi.mpirun, [program], apart=False
        )
    else:
        settings = [libraries.mpich_setting(mpi.mpirun, program, apart=False)]
    for setting in settings:
        if setting.crowded and ranks <= cores():
            continue
        (line,) = setting.start(argument, ranks)
        try:
            done = subprocess.run(
                line, capture_output=True, text=True, timeout=seconds, check=False, env=mpi.environment
            )
        except subprocess.TimeoutExpired:
            print(f"{setting.name}: more than {seconds:g} s", flush=True)
            continue
        found = [words.split() for words in done.stdout.splitlines() if words.lstrip()[:1].isdigit()]
        if done.returncode != 0 or not found:
            print(f"{setting.name}: {done.stderr.strip()[-300:]}", flush=True)
            continue
        yield setting.name, found
