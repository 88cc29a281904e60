"""Calls that differ on rank 1: in the way that the command line names."""

import sys

import numpy as np
from here import RANK, at_once

import gc3

comm = gc3.init()
comm.all_reduce(1)
calls = {
    "count": lambda: comm.all_reduce(np.ones(3 + (RANK == 1))),
    "collective": lambda: comm.all_gather([1]) if RANK == 1 else comm.all_reduce([1]),
    "root": lambda: comm.broadcast(np.ones(2), int(RANK == 1)),
    "type": lambda: comm.all_reduce(np.ones(3, np.float32 if RANK == 1 else np.int32)),
    "barrier": lambda: comm.barrier() if RANK == 1 else comm.all_reduce(1),
    "order": lambda: at_once(comm, "all_reduce", [np.zeros(5), np.zeros(7)][:: -1 if RANK == 1 else 1]),
    "equal": lambda: comm.all_to_all_v(np.ones(4), [[2, 2]] * 2) if RANK == 1 else comm.all_to_all(np.ones(4)),
    "blocks": lambda: comm.reduce_scatter_v(np.zeros(2 + (RANK == 1)), [1, 1 + (RANK == 1)]),
}
try:
    calls[sys.argv[1]]()
    comm.barrier()
except gc3.CommError as problem:
    print(problem)
