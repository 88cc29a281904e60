"""Scatters, and prints where the row that serves the call is from.

scatter_by_kept_table.py [different]    with an argument, rank 1 has no kept table
"""

import os
import sys

import numpy as np
from here import RANK, SIZE

import gc3

if RANK == 1 and sys.argv[1:] == ["different"]:
    os.environ["GC3_CACHE"] = "off"
with gc3.init() as comm:
    print(comm.explain("scatter", 100).source)
    y = comm.scatter(np.arange(2.0 * SIZE) if RANK == 0 else None, out=np.empty(2))
    assert y.tolist() == [2 * RANK, 2 * RANK + 1]
