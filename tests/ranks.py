"""Ranks that are real processes: pieces of Python run by several interpreters at once."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

HEAD = """
import os, signal, sys, time
import numpy as np
import gc3
r, n = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
"""


@dataclass
class World:
    """Rank processes that have been started."""

    processes: list[subprocess.Popen[str]]

    def finish(self, timeout: float = 60) -> list[tuple[int, str]]:
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
    """Returns a file of `rank_programs`, which finds out from `here` who it is."""
    return Path(__file__).parent / "rank_programs" / f"{name}.py"


def start(code: str | Path, ranks: int, environment: Mapping[str, str] | None = None) -> World:
    """Starts a program, or lines of one, on so many ranks, which know each other."""
    what = [str(code)] if isinstance(code, Path) else ["-c", HEAD + code]
    job = str(uuid.uuid4())
    processes = [
        subprocess.Popen(
            [sys.executable, *what],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={
                **os.environ,
                "RANK": str(rank),
                "WORLD_SIZE": str(ranks),
                "MASTER_ADDR": job,
                "MASTER_PORT": "1",
                **(environment or {}),
            },
        )
        for rank in range(ranks)
    ]
    return World(processes)


def run(code: str | Path, ranks: int, environment: Mapping[str, str] | None = None) -> list[str]:
    """Runs `code` on so many ranks, all of which must succeed; returns their outputs."""
    results = start(code, ranks, environment).finish()
    for rank, (status, text) in enumerate(results):
        assert status == 0, f"rank {rank} of {ranks} ended with {status}:\n{text}"
    return [text for _, text in results]
