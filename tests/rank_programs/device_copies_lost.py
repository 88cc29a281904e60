"""Rank 1 ends while rank 0 waits for what its copy engine should bring."""

import os

import numpy as np
from here import RANK
from on_device import there

import gc3

comm = gc3.init()
program = gc3.compile(gc3.algorithms.load("direct_alltoall"), R=2, protocol="Copy")
x, y = there(np.ones(10)), there(np.zeros(10))
comm.run(program, x, out=y)
comm.synchronize()
if RANK == 1:
    os._exit(9)
try:
    comm.run(program, x, out=y)
    comm.synchronize()
except gc3.CommError as problem:
    print(problem)
