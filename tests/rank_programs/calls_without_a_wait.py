"""Asynchronous calls for which the program never waits."""

import atexit
import time

import numpy as np
from here import RANK

import gc3

x = np.ones(1000)
comm = gc3.init()
if RANK == 1:
    time.sleep(0.3)
comm.all_reduce_async(x, out=x)
atexit.register(lambda: None)
comm.broadcast_async(x)
if RANK == 1:
    comm.close()  # rank 0 does not close it before the end of the program
    assert (x == 2).all()
