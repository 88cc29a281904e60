"""Many calls of all kinds, during which memory, descriptors and threads must not grow.

many_calls.py CALLS LEAK    LEAK is a resource that the program itself leaks, or "nothing"
"""

import gc
import os
import sys

import numpy as np
from here import RANK, SIZE, at_once

import gc3

CALLS, LEAK = int(sys.argv[1]), sys.argv[2]
COUNTS = (0, 1, 7, 300, 5000)
KINDS = 15
KEPT = []


def held() -> tuple[int, int, int, int]:
    """Bytes of memory and of shared memory, and the numbers of descriptors and threads."""
    gc.collect()
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[1])
    (job,) = (f for f in os.listdir("/proc/self/fd") if "memfd:gc3" in os.path.realpath(f"/proc/self/fd/{f}"))
    shared = os.stat(f"/proc/self/fd/{job}").st_blocks * 512
    return pages * 4096, shared, len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))


comm = gc3.init()
arrays = {c: np.ones(SIZE * c, np.float32) for c in COUNTS}
outs = {c: np.empty(c, np.float32) for c in COUNTS}


def reduce_to_sum(x: np.ndarray) -> None:
    assert (comm.all_reduce(x) == SIZE).all()


def reduce_later(x: np.ndarray) -> None:
    assert (comm.all_reduce_async(x, op="max").wait() == 1).all()


def split_or_wait(i: int) -> None:
    if i % 5 == 0:
        with comm.split(0, -RANK) as part:
            part.barrier()
    else:
        comm.barrier()


def blocks_of_lengths(i: int, x: np.ndarray) -> None:
    counts = [(i + s) % 3 * (x.size // SIZE // 2) for s in range(SIZE)]
    comm.all_gather_v(x[: counts[RANK]], counts if i % 2 else None)


def group_of_two(i: int) -> None:
    members = [i // KINDS % SIZE, (i // KINDS + 1) % SIZE]
    if RANK in members:
        with comm.group(members) as pair:
            pair.all_reduce(np.ones(3))


def call(i: int) -> None:
    count = COUNTS[i // KINDS % len(COUNTS)]
    x, out, root = arrays[count], outs[count], i % SIZE
    calls = (
        lambda: reduce_to_sum(x),
        lambda: comm.all_gather(x),
        lambda: comm.reduce_scatter(x),
        lambda: comm.all_to_all(x),
        lambda: comm.broadcast(out, root),
        lambda: comm.reduce(x, root=root),
        lambda: comm.gather(x, root=root),
        lambda: comm.scatter(x, root=root, out=out),
        lambda: comm.all_to_next(x),
        lambda: reduce_later(x),
        lambda: split_or_wait(i),
        lambda: blocks_of_lengths(i, x),
        lambda: comm.sendrecv(x, (RANK + 1) % SIZE, x.copy(), (RANK - 1) % SIZE, i),
        lambda: group_of_two(i),
        lambda: at_once(comm, "all_reduce", [x, *arrays.values()]),
    )
    calls[i % KINDS]()


def leak(i: int) -> None:
    if LEAK == "memory":
        KEPT.append(np.ones(5000))
    elif LEAK == "descriptors" and i % 100 == 0:
        os.dup(1)
    elif LEAK == "shared memory" and i % 20 == 0:
        KEPT.append(comm.split(0))


before = held()
for i in range(CALLS):
    if i == CALLS // 4:
        before = held()
    call(i)
    leak(i)
comm.barrier()
after = held()
comm.barrier()
assert after[0] < before[0] + (4 << 20), ("memory", before, after)
assert after[1] <= before[1] + (1 << 16), ("shared memory", before, after)
assert after[2:] == before[2:], ("descriptors and threads", before, after)
