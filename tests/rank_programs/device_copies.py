"""Copy engines move the messages of a program; with an argument, not on all ranks' devices, so threadblocks do."""

import os
import sys

import numpy as np
from here import RANK, SIZE

if sys.argv[1:] and RANK == 1:  # of the fake driver
    os.environ["FAKE_CUDA"] = "values=0"

from on_device import there

import gc3

with gc3.init() as comm:
    wanted = "protocol Copy: " + (*sys.argv[1:], "copy engines")[0]
    program = gc3.compile(gc3.algorithms.load("direct_alltoall"), R=SIZE, protocol="Copy")
    ring = gc3.compile(gc3.algorithms.load("ring_allgather"), R=SIZE, protocol="Copy", in_place=False)
    for count in (1, 1000, 70_001):
        x = there(np.arange(count * SIZE) % 1000 + RANK)
        y = there(np.zeros(count * SIZE))
        z = there(np.zeros(count * SIZE * SIZE))
        for _ in range(3):
            comm.run(program, x, out=y)
            comm.run(ring, x, out=z)
        comm.synchronize()
        whole = [np.arange(count * SIZE) % 1000 + rank for rank in range(SIZE)]
        assert (y.memory.content == np.concatenate([w[RANK * count : (RANK + 1) * count] for w in whole])).all()
        assert (z.memory.content == np.concatenate(whole)).all()
    assert wanted in str(comm.explain("alltoall", 5)), comm.explain("alltoall", 5)
