"""Rank 0 sends so many bytes, the argument, and a part of them to rank 1."""

import sys

import numpy as np
from here import RANK

import gc3

with gc3.init() as comm:
    x = np.zeros(int(sys.argv[1]) // 8, np.uint64)
    if RANK == 0:
        x[:] = np.arange(x.size)
        comm.send(x, 1)
        comm.send(x[: 3 << 20], 1, tag=1)
    else:
        small = np.zeros(3 << 20, np.uint64)
        request = comm.irecv(small, 0, 1)
        assert comm.recv(x, 0, 0).count == x.size
        assert request.wait().count == small.size
        assert (x == np.arange(x.size)).all()
        assert (small == x[: small.size]).all()
