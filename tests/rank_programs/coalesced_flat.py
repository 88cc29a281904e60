"""Many arrays by a program that does not serve blocks of different lengths: they are copied to equal ones."""

import numpy as np

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
comm.close()
