"""Opens and closes communicators with few descriptors."""

import gc
import os
import resource

import numpy as np
from here import SIZE

import gc3

gc.disable()
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
held = []
for i in range(126 if SIZE == 1 else 60):
    comm = gc3.init()
    part = comm.split(0)
    comm.all_reduce(np.ones(3))
    part.broadcast(np.ones(100_000), root=0)
    array = gc3.empty(1000, np.float32) if i % 2 else part.empty(1000, np.float32)
    array[:] = i
    part.close()
    comm.close()
    held.append((comm, part, array))
    if i == 2:
        files = len(os.listdir("/proc/self/fd"))
assert len(os.listdir("/proc/self/fd")) <= files
assert all((array == i).all() for i, (_, _, array) in enumerate(held))
