"""A program that is run, and one that is loaded, on an array of a device."""

import numpy as np
from here import RANK
from on_device import there

import gc3

with gc3.init() as comm:
    program = gc3.compile(gc3.algorithms.load("ring_allreduce"), R=2, protocol="LL", in_place=True)
    x = there(np.ones(5) + RANK)
    comm.run(program, x, out=x)
    assert "between devices: CUDA IPC (rank 0: GC3_CUDA_WINDOWS is 0)" in str(comm.explain("allreduce", 5))
    comm.load(program)
    comm.all_reduce(x, out=x)
    comm.synchronize()
    assert x.memory.content.tolist() == [6.0] * 5
