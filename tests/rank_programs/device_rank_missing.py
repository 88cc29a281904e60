"""Rank 1 makes one call less, and stays until rank 0 has been told so: `device_rank_missing.py FILE`."""

import sys
import time
from pathlib import Path

import numpy as np
from here import RANK
from on_device import there

import gc3

told = Path(sys.argv[1])

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
        told.touch()
    while not told.exists():
        time.sleep(0.02)
