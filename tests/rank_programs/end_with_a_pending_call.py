"""Rank 0 ends while its call is running, in the way that the command line names; rank 1 then makes the call.

end_with_a_pending_call.py HOW FILE    FILE exists once rank 0 has ended
"""

import os
import sys
import time

import numpy as np
from here import RANK

import gc3

HOW, ENDED = sys.argv[1:]

comm = gc3.init()
if RANK == 0:
    handle = comm.all_reduce_async(np.ones(3))
    print("ready", flush=True)
    if HOW == "an exception":
        raise ValueError("mine")
    if HOW == "an exception in a with block":
        with comm:
            raise ValueError("mine")
    while True:  # until Ctrl-C, which Python may notice only after a sleep that begins as it comes
        time.sleep(0.01)
while not os.path.exists(ENDED):
    time.sleep(0.02)
try:
    comm.all_reduce(np.ones(3))
except gc3.CommError as problem:
    print(problem.message)
