"""A call that a signal interrupts."""

import time

from here import RANK

import gc3

comm = gc3.init()
if RANK == 1:
    time.sleep(1.5)
try:
    print("ready", flush=True)
    comm.all_reduce(1)
except KeyboardInterrupt:
    print("interrupted")
except gc3.CommError as problem:
    print(problem)
