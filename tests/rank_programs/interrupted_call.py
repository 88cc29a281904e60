"""A call that a signal interrupts.

interrupted_call.py FILE    FILE exists once rank 0 was interrupted; rank 1 calls then
"""

import sys
import time
from pathlib import Path

from here import RANK

import gc3

comm = gc3.init()
if RANK == 1:
    while not Path(sys.argv[1]).exists():
        time.sleep(0.02)
try:
    print("ready", flush=True)
    comm.all_reduce(1)
except KeyboardInterrupt:
    print("interrupted", flush=True)
except gc3.CommError as problem:
    print(problem)
