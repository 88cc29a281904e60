"""Adds arrays of the given length, and prints how messages move between the ranks.

explain_messages.py COUNT
"""

import sys

import numpy as np
from here import SIZE

import gc3

COUNT = int(sys.argv[1])
with gc3.init() as comm:
    if COUNT:
        assert comm.all_reduce(np.ones(COUNT)).sum() == SIZE * COUNT
    told = comm.explain("allreduce", 10)
    assert told.processes in str(told)
    print(told.processes)
