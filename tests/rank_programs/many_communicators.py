"""Makes many communicators in one address space of limited size, with few descriptors."""

import os
import resource

import numpy as np
from here import RANK, SIZE

import gc3


def addresses() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def files(name: str) -> int:
    with os.scandir("/proc/self/fd") as entries:
        return sum(name in os.readlink(entry.path) for entry in list(entries) if os.path.lexists(entry.path))


first = gc3.init()
assert (first.all_reduce(np.ones(3)) == SIZE).all()
start = addresses()
resource.setrlimit(resource.RLIMIT_AS, (start + (256 << 20), resource.RLIM_INFINITY))
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
kept = [first]
for i in range(20):
    kept.append(gc3.init())
    kept.append(gc3.init((RANK + i) % SIZE, SIZE, job=f"{os.environ['MASTER_PORT']} {i}"))
for i in range(300):
    made = kept[i % len(kept)].group(range(SIZE)) if i % 2 else first.split(0)
    assert made is not None
    kept.append(made)
for comm in kept[::40]:
    assert (comm.all_reduce(np.ones(30_000)) == SIZE).all()
assert files("memfd:gc3") == 1
assert files("pidfd") == SIZE - 1
array = gc3.empty(1 << 22, np.uint8)
array[:] = RANK
for comm in kept:
    comm.close()
for _ in range(50):
    with gc3.init() as comm:
        assert (comm.all_reduce(np.ones(3)) == SIZE).all()
assert files("memfd:gc3") == 0
assert (array == RANK).all()
