"""Rank 1 is killed between calls; the other ranks report it."""

import os
import signal
import time

import numpy as np
from here import RANK

import gc3

comm = gc3.init()
if RANK == 1:
    comm.all_reduce(np.ones(100_000))
    os.kill(os.getpid(), signal.SIGKILL)
started = time.monotonic()
try:
    while True:
        comm.all_reduce(np.ones(100_000))
except gc3.CommError as problem:
    assert problem.code == "GC3-R009", problem
    assert "rank 1 (process" in problem.message, problem
    assert time.monotonic() - started < 60  # the time-out is 300
    print("told")
