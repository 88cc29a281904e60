"""A fault of the network or of a host, in the middle of calls: `python lost_hosts.py FAULT HOST` in tests/hosts.py.

Every rank prints the error that ends its calls, and after how many seconds. A rank of another host causes the fault.
"""

import sys
import time
from pathlib import Path

import numpy as np

import gc3

sys.path.insert(0, str(Path(__file__).parents[1]))
import hosts

fault, host = sys.argv[1:]
comm = gc3.init()
data = np.ones(1000, "float32")
comm.barrier()
half = comm.size // 2
begun = time.monotonic()
try:
    for turn in range(1_000_000):
        if turn == 20 and comm.rank == (0 if host == "1" else half):
            hosts.do(fault, host)
        comm.all_reduce(data)
        begun = time.monotonic()
except gc3.CommError as problem:
    took = time.monotonic() - begun
    print(f"\nlost after {took:.1f} s: {' '.join(str(problem).split())}", flush=True)
if fault == "stop" and comm.rank == 0:
    hosts.do("kill", host)
