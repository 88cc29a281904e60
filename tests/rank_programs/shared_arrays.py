"""Calls on arrays that all ranks can read, and when their memory is freed."""

import os

import numpy as np
from here import RANK, SIZE

import gc3

try:
    gc3.empty(3)
except gc3.UserError as problem:
    assert problem.code == "GC3-R011"
comm = gc3.init()
x, y = gc3.empty((3, 50_000), "int64"), comm.empty(150_000, np.int64)
assert x.shape == (3, 50_000)
assert x.dtype == np.int64
assert not x.any()
assert gc3.empty(0).size == 0
for turn in range(5):
    x[:] = np.arange(150_000).reshape(3, -1) + RANK + turn
    comm.all_reduce(x, out=y)
    x[:] = 0  # the others have finished reading it
    assert np.array_equal(y, SIZE * (np.arange(150_000) + turn) + SIZE * (SIZE - 1) // 2)
    comm.all_reduce(y, out=y)
    assert y[1] == SIZE * (SIZE * (1 + turn) + SIZE * (SIZE - 1) // 2)
    plain = np.arange(150_000) * RANK
    assert np.array_equal(comm.all_gather(plain)[-150_000:], np.arange(150_000) * (SIZE - 1))
(file,) = (f for f in os.listdir("/proc/self/fd") if "memfd:gc3" in os.path.realpath(f"/proc/self/fd/{f}"))
kept = os.dup(int(file))  # close() closes the communicator's own


def used() -> int:
    return os.fstat(kept).st_blocks


comm.close()
y[:] = 1  # it outlives the communicator
before = used()
del x
assert used() <= before - 3 * (50_000 * 8 - 4096) // 512  # a page of each is kept
