"""Gathers, in both modes, by the table that is named, and prints the programs that serve the calls."""

import sys

import numpy as np
from here import RANK, SIZE

import gc3

with gc3.init(table=sys.argv[1]) as comm:
    count = int(sys.argv[2])
    mine = np.full(count, RANK, np.int32)
    everything = np.repeat(np.arange(SIZE, dtype=np.int32), count)
    got = comm.all_gather(mine, out=np.empty(SIZE * count, np.int32))
    assert np.array_equal(got, everything)
    got[:] = -1
    own = got[RANK * count : (RANK + 1) * count]
    own[:] = RANK
    comm.all_gather(own, out=got)
    assert np.array_equal(got, everything)
    print(*(comm.explain("allgather", count, "int32", in_place=mode).program for mode in (False, True)), sep=";")
