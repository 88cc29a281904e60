"""Asynchronous calls: their order, their results, and a wait that times out."""

import time

import numpy as np
from here import RANK, SIZE

import gc3

with gc3.init() as comm:
    handles = [comm.all_reduce_async(np.full(1000, i)) for i in range(20)]
    gathered = comm.all_gather_async([RANK])
    assert comm.all_reduce(1) == SIZE  # runs after the started calls
    assert gathered.test()
    assert [int(h.wait()[0]) for h in handles] == [i * SIZE for i in range(20)]
    assert gathered.wait().tolist() == list(range(SIZE))
    if RANK == 0:
        late = comm.all_reduce_async(np.ones(3))
        try:
            late.wait(0.05)
        except gc3.CommError as problem:
            assert problem.code == "GC3-R003"
        else:
            raise AssertionError("no other rank has called")
        assert not late.test()
    if RANK != 0:
        time.sleep(0.5)
        late = comm.all_reduce_async(np.ones(3))
    assert late.wait().tolist() == [SIZE] * 3
