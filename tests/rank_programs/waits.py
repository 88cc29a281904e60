"""Calls of several sizes and collectives, whose results are right however a rank waits; prints how it waits.

waits.py [WAY]    the ranks but the first tell gc3.init this way to wait
"""

import sys

import numpy as np
from here import RANK, SIZE

import gc3
from gc3.algorithms import load

with gc3.init(wait=sys.argv[1] if sys.argv[1:] and RANK else None) as comm:
    comm.load(gc3.compile(load("ring_allreduce"), R=SIZE, in_place=False), max_size=4096)
    for turn in range(20):
        for count in (100, 10_000):  # by the loaded program, and by the table
            assert (comm.all_reduce(np.full(count, RANK)) == SIZE * (SIZE - 1) // 2).all()
        assert (comm.all_to_all(np.arange(40_000) + turn)[:1] == RANK * (40_000 // SIZE) + turn).all()
        assert comm.broadcast(np.full(300_000, RANK), root=turn % SIZE)[-1] == turn % SIZE
        comm.barrier()
    told = comm.explain("allreduce", 10)
    assert told.waits in str(told)
    print(told.waits)
