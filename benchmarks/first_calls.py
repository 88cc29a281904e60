"""Measures what it costs to begin: importing, joining, and the first calls of each collective.

    python benchmarks/first_calls.py                      2, 4, 8, 17 and 32 ranks
    python benchmarks/first_calls.py --ranks 2,8 --rounds 5

Starts the ranks as processes and prints a row for each number of them: milliseconds on the slowest rank, the median of
the rounds. "join" begins when all ranks have been imported; a second join uses the job of the first. Of each
collective, the first call of S bytes and the next one.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import time
import uuid
from typing import Any

COLLECTIVES = ("all_reduce", "all_gather", "all_to_all", "broadcast", "reduce_scatter")
SIZE = "FIRST_CALLS_SIZE"  # set in the processes of the ranks


def rank(size: int) -> None:
    """Runs one rank: prints the milliseconds on the slowest rank, from rank 0."""
    start = time.perf_counter()
    np, gc3 = (importlib.import_module(name) for name in ("numpy", "gc3"))
    imported = time.perf_counter() - start
    with gc3.init() as meeting:  # which waits for the slowest rank to be imported
        meeting.barrier()
        times: list[tuple[str, float]] = [("import", imported)]
    begin = time.perf_counter()
    comm = gc3.init()
    times.append(("join", time.perf_counter() - begin))
    begin = time.perf_counter()
    with gc3.init() as again:
        times.append(("again", time.perf_counter() - begin))
        again.barrier()
    elements = max(comm.size, size // 4 // comm.size * comm.size)
    for name in COLLECTIVES:
        call = getattr(comm, name)
        x = np.ones(elements // comm.size if name == "all_gather" else elements, np.float32)
        for which in ("first", "second"):
            comm.barrier()
            begin = time.perf_counter()
            call(x)
            times.append((f"{name} {which}", time.perf_counter() - begin))
    slowest = comm.all_reduce(np.array([taken for _, taken in times]), op="max")
    if comm.rank == 0:
        print(json.dumps(dict(zip([name for name, _ in times], (1e3 * slowest).tolist(), strict=True))))


def measured(ranks: int, size: int) -> dict[str, float]:
    """Starts the ranks once, and returns their times in milliseconds by name."""
    job = str(uuid.uuid4())
    processes: list[subprocess.Popen[str]] = []
    for number in range(ranks):
        variables = {SIZE: str(size), "RANK": str(number), "WORLD_SIZE": str(ranks), "MASTER_ADDR": "localhost"}
        environment: dict[str, str] = {**os.environ, **variables, "MASTER_PORT": job}
        processes.append(
            subprocess.Popen([sys.executable, __file__], env=environment, stdout=subprocess.PIPE, text=True)
        )
    texts = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        raise SystemExit(f"a rank of {ranks} has failed")
    found: dict[str, Any] = json.loads(texts[0])
    return found


def main() -> None:
    """Prints the table."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--ranks", default="2,4,8,17,32")
    arguments.add_argument("--size", type=int, default=1024, help="bytes S, as nccl-tests defines them per collective")
    arguments.add_argument("--rounds", type=int, default=3)
    given = arguments.parse_args()
    print("| Ranks | import | join | join again |", *(f" {name} |" for name in COLLECTIVES), sep="")
    print("|---|---|---|---|" + "---|" * len(COLLECTIVES))
    for ranks in map(int, given.ranks.split(",")):
        rounds = [measured(ranks, given.size) for _ in range(given.rounds)]
        found = {name: statistics.median(times[name] for times in rounds) for name in rounds[0]}
        row = [f"{found[name]:.0f}" for name in ("import", "join", "again")]
        row += [f"{found[f'{name} first']:.1f}, {found[f'{name} second']:.2f}" for name in COLLECTIVES]
        print(f"| {ranks} |", *(f" {cell} |" for cell in row), sep="", flush=True)


if __name__ == "__main__":
    if SIZE in os.environ:
        rank(int(os.environ[SIZE]))
    else:
        main()
