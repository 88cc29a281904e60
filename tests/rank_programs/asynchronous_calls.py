"""Asynchronous calls: their order, their results, and a wait that times out.

asynchronous_calls.py FILE    FILE is made when the wait has timed out; the others call then
"""

import sys
import time
from pathlib import Path

import numpy as np
from here import RANK, SIZE

import gc3

waited = Path(sys.argv[1])
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
        waited.touch()
    if RANK != 0:
        while not waited.exists():
            time.sleep(0.02)
        late = comm.all_reduce_async(np.ones(3))
    assert late.wait().tolist() == [SIZE] * 3
