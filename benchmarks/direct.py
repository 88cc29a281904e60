"""One-sided programs beside messages, in turn, so that all meet the same load: on threads, or between processes.

python benchmarks/direct.py [--processes] [RANKS ...]

On threads: beside the messages of the same algorithm, of which the faster of Simple and LL counts. Between processes:
beside the program of the table, on ordinary and on registered memory; of the one-sided programs the faster counts, and
of each the turn with the least median. A ratio above 1 says that the one-sided program is faster.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import gc3
from gc3 import algorithms

NAMES = (
    "direct_allreduce",
    "allpairs_allreduce",
    "ring_allreduce",
    "direct_allgather",
    "direct_reducescatter",
    "direct_alltoall",
)
SIZES = (1 << 10, 1 << 16, 1 << 18, 1 << 20, 1 << 24)  # bytes of the whole buffer
TURNS = 5


def ratio(name: str, ranks: int, size: int) -> tuple[float, float]:
    """The median times of the messages and of the one-sided program, in seconds."""
    algorithm = algorithms.load(name)
    direct = gc3.compile(algorithm, memory="direct", R=ranks, in_place=False)
    forms = [gc3.compile(algorithm, R=ranks, in_place=False, protocol=p) for p in ("Simple", "LL")]
    collective = direct.collective
    count = size // 4 // (1 if collective.name == "allreduce" else ranks)
    blocks = [collective.input_chunks(rank) // collective.chunks for rank in range(ranks)]
    inputs = [np.ones(count * many, np.float32) for many in blocks]
    iterations = max(5, min(300, 3 * SIZES[-1] // size))
    times: list[list[float]] = [[] for _ in range(1 + len(forms))]
    for _ in range(TURNS):
        for found, program in zip(times, (direct, *forms), strict=True):
            found.extend(program.time(inputs, count=count, warmup=3, iterations=iterations))
    ours, *others = (statistics.median(found) for found in times)
    return min(others), ours


BETWEEN = {
    "allreduce": ("direct_allreduce", "recursive_doubling_allreduce"),
    "allgather": ("direct_allgather",),
    "reducescatter": ("direct_reducescatter",),
    "alltoall": ("direct_alltoall",),
    "broadcast": ("flat_broadcast",),
}
SIZES_BETWEEN = (1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26)


def between(comm: gc3.Communicator, name: str, size: int) -> tuple[float, float, float]:
    """The times of the table on ordinary and on registered memory, and of the one-sided program, in seconds."""
    model = gc3.collectives.get(name).model(comm.size)
    most = max(max(model.input_blocks(rank), model.output_blocks(rank)) for rank in range(comm.size))
    count = size // 4 // most

    def filled(make: Callable[..., Any]) -> tuple[Any, Any]:
        buffers = [make(b * count, np.float32) for b in (model.input_blocks(comm.rank), model.output_blocks(comm.rank))]
        for buffer in buffers:
            buffer.fill(1)
        return buffers[0], buffers[1]

    registered = filled(comm.empty)
    ways: list[dict[str, Any]] = [{"buffers": filled(np.empty)}, {"buffers": registered}]
    for algorithm in BETWEEN[name]:
        for instances in (1, 4):
            program = gc3.compile(
                algorithms.load(algorithm), memory="direct", R=comm.size, in_place=False, instances=instances
            )
            ways.append({"buffers": registered, "program": program})
    iterations = max(3, min(50, SIZES_BETWEEN[-1] // size))
    times: list[list[float]] = [[] for _ in ways]
    for _ in range(TURNS):
        for found, way in zip(times, ways, strict=True):
            found.append(statistics.median(comm.time(name, count, warmup=1, iterations=iterations, **way)))
    ordinary, shared, *ours = map(min, times)
    return ordinary, shared, min(ours)


def processes(counts: list[int]) -> None:
    """Prints a line for each point, and the geometric means of the ratios."""
    ratios: list[tuple[float, float]] = []
    for ranks in counts:
        for name in BETWEEN:
            for size in SIZES_BETWEEN:
                ordinary, shared, direct = gc3.spawn(between, ranks, name, size)[0]
                ratios.append((ordinary / direct, shared / direct))
                texts = [f"{1e6 * each:9.1f} us" for each in (ordinary, shared, direct)]
                print(f"{ranks} {size:9} {name:13} {' '.join(texts)} {ratios[-1][0]:6.2f} {ratios[-1][1]:6.2f}")
    for what, found in zip(("ordinary", "registered"), zip(*ratios, strict=True), strict=True):
        print(
            f"{len(ratios)} points, than the table on {what} memory: geometric mean "
            f"{statistics.geometric_mean(found):.2f}, least {min(found):.2f}"
        )


def main() -> None:
    """Prints a line for each point, and the geometric mean of the ratios."""
    between_processes, given = "--processes" in sys.argv, [int(text) for text in sys.argv[1:] if text != "--processes"]
    if between_processes:
        return processes(given or [2, 4, 8])
    ratios: list[float] = []
    for ranks in given or [2, 4]:
        for size in SIZES:
            for name in NAMES:
                messages, direct = ratio(name, ranks, size)
                ratios.append(messages / direct)
                print(f"{ranks} {size:9} {name:21} {1e6 * messages:9.1f} us {1e6 * direct:9.1f} us {ratios[-1]:6.2f}")
    print(f"{len(ratios)} points, geometric mean {statistics.geometric_mean(ratios):.2f}")


if __name__ == "__main__":
    main()
