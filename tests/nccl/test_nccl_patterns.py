"""The patterns of nccl-tests, by a C++ program that opens libnccl.so.2: on the fake driver, above a fake NCCL.

All collectives and types, in and out of place, in CUDA graphs and without, ranks as threads and in groups of a thread.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

import fake_driver
import nccl_world
from gc3 import nccl

PERF = nccl_world.FAKE_NCCL.with_name("gc3_nccl_perf")
pytestmark = [
    pytest.mark.skipif(not PERF.exists(), reason="the program is built by `make cpp-tests`"),
    pytest.mark.python_only,
]
# Threads, and ranks of each.
WORLDS = ((1, 2), (3, 1), (2, 2), *(pytest.param(*world, marks=pytest.mark.nightly) for world in ((4, 2), (1, 8))))
COLLECTIVES = 8
REDUCING = 3
TYPES = 12
PLACES = 2 * COLLECTIVES - 1  # AlltoAll has none in place


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return nccl_world.write_programs(tmp_path_factory.mktemp("nccl") / "programs", (2, 3, 4, 8))


def perf(programs: Path, log: Path, *arguments: str, threads: int, ranks: int) -> str:
    """Runs the program behind the overlay, with a device for each rank; returns its lines."""
    done = subprocess.run(
        [PERF, *arguments, "-n", "0", "-t", str(threads), "-g", str(ranks)],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
        env={
            **os.environ,
            **fake_driver.ENVIRONMENT,
            "FAKE_CUDA": f"devices={threads * ranks}",
            "TMPDIR": str(log.parent),  # of the fake NCCL
            "LD_PRELOAD": str(nccl.library()),
            "GC3_NCCL": str(nccl_world.FAKE_NCCL),
            "GC3_NCCL_PROGRAMS": str(programs),
            "GC3_NCCL_LOG": str(log),
        },
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "wrong elements: 0" in done.stdout
    return done.stdout


def served(log: Path) -> tuple[int, int]:
    """How many calls programs have served, and how many NCCL."""
    calls = [s for found in nccl.read_logs(log) for s in found.served]
    return sum(s.calls for s in calls if s.by != "NCCL"), sum(s.calls for s in calls if s.by == "NCCL")


@pytest.mark.parametrize(("threads", "ranks"), WORLDS)
def test_all_collectives_and_types_in_graphs_and_without(
    threads: int, ranks: int, programs: Path, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    said = perf(
        programs,
        log,
        "all",
        "-d",
        "all",
        "-b",
        "64",
        "-e",
        "6400",
        "-f",
        "100",
        "-G",
        "1",
        threads=threads,
        ranks=ranks,
    )
    lines = TYPES * PLACES * 2
    assert len([line for line in said.splitlines() if not line.startswith("#")]) == lines
    # Each is called once, and captured once.
    assert served(log) == (2 * lines * threads * ranks, 0)


@pytest.mark.parametrize(("threads", "ranks"), [(1, 3), (4, 1)])
def test_all_reductions_and_roots_of_non_blocking_communicators(
    threads: int, ranks: int, programs: Path, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    perf(
        programs, log, "all", "-d", "int32", "-o", "all", "-r", "all", "-b", "2400", "-G", "1", "-N", "1",
        threads=threads, ranks=ranks,
    )  # fmt: skip
    size = threads * ranks
    tests = 2 * (5 + 5 + 5 * size) + 2 * (1 + 3 * size) + 1
    assert served(log) == (2 * tests * size, 0)


def test_calls_of_programs_and_of_nccl(tmp_path: Path) -> None:
    some = nccl_world.write_programs(tmp_path / "programs", (4,), sizes="1000 -")
    log = tmp_path / "log"
    for kind in ("int8", "double"):
        perf(some, log, "all", "-d", kind, "-b", "80", "-e", "8000", "-f", "10", "-G", "1", threads=2, ranks=2)
    by_programs, by_nccl = served(log)
    assert by_programs > 100
    assert by_nccl > 100
