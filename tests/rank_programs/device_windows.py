"""Runs programs of two protocols on a device, and prints how the ranks reach each other."""

import numpy as np
from here import RANK, SIZE
from on_device import there

import gc3

with gc3.init() as comm:
    x = there(np.arange(3000) + RANK)
    before = comm.explain("allreduce", 3000)
    assert before.devices == ""
    assert "devices" not in str(before)
    for protocol in ("Simple", "LL128"):
        program = gc3.compile(gc3.algorithms.load("ring_allreduce"), R=SIZE, protocol=protocol, in_place=True)
        comm.run(program, x, out=x)
    comm.synchronize()
    assert np.array_equal(x.memory.content, SIZE * np.sum([np.arange(3000) + s for s in range(SIZE)], axis=0))
    print(comm.explain("allreduce", 3000))
