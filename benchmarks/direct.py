"""One-sided programs on threads, beside the messages of the same algorithm in the same process.

Both forms run in turn, so that both meet the same load. Of the messages the faster of Simple and LL counts. A ratio
above 1 says that the one-sided program is faster.
"""

from __future__ import annotations

import statistics
import sys

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


def main() -> None:
    """Prints a line for each point, and the geometric mean of the ratios."""
    ratios: list[float] = []
    for ranks in (int(text) for text in sys.argv[1:] or ("2", "4")):
        for size in SIZES:
            for name in NAMES:
                messages, direct = ratio(name, ranks, size)
                ratios.append(messages / direct)
                print(f"{ranks} {size:9} {name:21} {1e6 * messages:9.1f} us {1e6 * direct:9.1f} us {ratios[-1]:6.2f}")
    print(f"{len(ratios)} points, geometric mean {statistics.geometric_mean(ratios):.2f}")


if __name__ == "__main__":
    main()
