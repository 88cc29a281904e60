"""Rank 1 makes one call less, and stays away for longer than the deadline, which is the argument."""

import sys
import time

import numpy as np
from here import RANK
from on_device import there

import gc3

with gc3.init() as comm:
    x = there(np.ones(5))
    comm.all_reduce(x, out=x)
    comm.synchronize()
    if RANK == 0:
        for _ in range(2):
            try:
                comm.all_reduce(x, out=x)
                comm.synchronize()
            except gc3.CommError as problem:
                print(problem)
    else:
        time.sleep(2 * float(sys.argv[1]))
