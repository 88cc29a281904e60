"""Ranks that are processes: Python programs run by several interpreters at once."""

from __future__ import annotations

import os
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import forked
import gc3
from gc3.comm.objects import pickled, unpickled

# Seconds after which a test no longer waits for what takes a moment on a machine of its own. The CI has two cores, with
# other work on them, and sanitizers. A defect makes these waits endless, or longer than this.
LONGEST = 100.0
# Seconds that such a machine may add to a time that gc3 promises.
LOAD = 30.0
SANITIZED = "asan" in os.environ.get("LD_PRELOAD", "")
# Of a test that leaves its ranks little memory.
limits_memory = pytest.mark.skipif(SANITIZED, reason="the sanitizer needs its address space")


def until(happened: Callable[[], object]) -> None:
    """Waits until `happened` returns something true, at most `LONGEST`; the caller asserts what it expects."""
    deadline = time.monotonic() + LONGEST
    while not happened() and time.monotonic() < deadline:
        time.sleep(0.02)


def children(process: int) -> list[int]:
    """The processes that the main thread of a process has started and not yet collected."""
    return [int(pid) for pid in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


@dataclass
class World:
    """Rank processes that have been started."""

    processes: list[forked.Process]

    def finish(self, timeout: float = LONGEST) -> list[tuple[int, str]]:
        """Returns exit status and output, both streams, of every rank."""
        deadline = time.monotonic() + timeout
        try:
            found = [p.communicate(timeout=max(deadline - time.monotonic(), 0.1))[0] for p in self.processes]
        finally:
            for process in self.processes:
                process.kill()
                process.wait()
        return [(p.returncode, text) for p, text in zip(self.processes, found, strict=True)]


def program(name: str) -> Path:
    """Returns a file of `rank_programs`, which gets its rank and the number of ranks from `here`."""
    return Path(__file__).parent / "rank_programs" / f"{name}.py"


def start(
    file: Path,
    ranks: int,
    environment: Mapping[str, str] | None = None,
    arguments: Sequence[object] = (),
    imports: Sequence[str] = ("ready",),
) -> World:
    """Starts a program with arguments on the ranks of a new job. It can import the helpers beside this file.

    It begins with `imports` made.
    """
    job = str(uuid.uuid4())
    paths = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    processes = [
        forked.start(
            file,
            [str(argument) for argument in arguments],
            {
                # What gc3.init() measures takes a third of a short rank's time; tests about it say so.
                "GC3_PROBE": "0",
                **os.environ,
                "PYTHONPATH": os.pathsep.join(paths),
                "RANK": str(rank),
                "WORLD_SIZE": str(ranks),
                "MASTER_ADDR": job,
                "MASTER_PORT": "1",
                **(environment or {}),
            },
            imports,
        )
        for rank in range(ranks)
    ]
    return World(processes)


def run(
    file: Path,
    ranks: int,
    environment: Mapping[str, str] | None = None,
    arguments: Sequence[object] = (),
    imports: Sequence[str] = ("ready",),
) -> list[str]:
    """Like `start`; all ranks must succeed. Returns their outputs."""
    results = start(file, ranks, environment, arguments, imports).finish()
    ended = [f"rank {rank} of {ranks} ended with {status}:\n{text}" for rank, (status, text) in enumerate(results)]
    assert all(status == 0 for status, _ in results), "\n".join(ended)
    return [text for _, text in results]


def call(fn: Callable[[gc3.Communicator], Any], ranks: int, table: str | None = None) -> list[Any]:
    """What `gc3.spawn` does, for tests that are not about how it starts ranks, which here are forked."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "fn").write_bytes(pickled((sys.path, table, pickled(fn))))
        run(program("called"), ranks, arguments=[folder], imports=("ready", "gc3.comm.objects", "pytest"))
        return [unpickled(Path(folder, str(rank)).read_bytes()) for rank in range(ranks)]
