"""Many arrays by a program that does not serve blocks of different lengths: they are copied to equal ones.

coalesced_flat.py [limit]    limit: rank 0 has no memory for the copy, which is an error of all ranks
"""

import resource
import sys

import numpy as np
from here import error_of

import gc3

comm = gc3.init()
me, n = comm.rank, comm.size
source = gc3.SourceProgram("odd", "alltoall", ranks=n)
with source:
    for r in range(n):
        for d in range(n):
            gc3.chunk(r, "in", d).copy(d, "out", r)
    waste = gc3.chunk(0, "in", 0).copy(0, "sc", 0)
    waste.reduce(gc3.chunk(0, "in", 1))
comm.load(gc3.compile(source))
said = str(comm.explain("alltoall", [1, 40, 3]))
assert "several arrays: one run for 3, on a copy of them in one buffer: " in said, said
for _ in range(3):
    inputs = [np.arange(n * length, dtype=np.float32) + 100 * me + length for length in (1, 40, 3)]
    outputs = [np.zeros_like(x) for x in inputs]
    with comm.coalesce() as calls:
        for x, out in zip(inputs, outputs, strict=True):
            calls.all_to_all(x, out)
    for x, out in zip(inputs, outputs, strict=True):
        length = x.size // n
        own = np.arange(me * length, (me + 1) * length, dtype=np.float32) + length
        assert (out == np.concatenate([own + 100 * r for r in range(n)])).all(), out
if "limit" in sys.argv:
    arrays = [(np.zeros(n << 20), np.zeros(n << 20)) for _ in range(4)]
    comm.all_reduce_async(1).wait()  # the thread has its stack
    if me == 0:
        with open("/proc/self/statm") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (32 << 20), resource.RLIM_INFINITY))
    calls = comm.coalesce()
    for x, out in arrays:
        calls.all_to_all(x, out)
    said = error_of(calls.start().wait)
    assert said.startswith("GC3-R006 "), said
    assert "rank 0 (process" in said, said
    assert f"has no {4 * (n << 23)} bytes for a copy of the arrays of the input" in said, said
comm.close()
