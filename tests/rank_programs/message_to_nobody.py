"""Messages between two ranks that can never arrive; prints the error.

message_to_nobody.py lost|crossed    the sender has ended, or both send and none receives
"""

import os
import sys

import numpy as np
from here import RANK

import gc3

with gc3.init() as comm:
    if sys.argv[1] == "lost":
        if RANK == 1:
            os._exit(0)
        try:
            comm.recv(np.ones(1), 1)
        except gc3.CommError as problem:
            print(problem)
    else:
        group = comm.group([0, 1], name="pair", timeout=3)  # both have begun to send by then
        comm.barrier()
        try:
            group.send(np.ones(1 << 20), 1 - RANK)
        except gc3.CommError as problem:
            print(problem)
        assert comm.all_reduce(np.ones(1))[0] == 2
