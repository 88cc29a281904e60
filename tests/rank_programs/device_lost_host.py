"""A host that is lost while kernels wait for it: `python device_lost_host.py FAULT` in tests/hosts.py."""

import os
import sys
import threading
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
import fake_arrays
import hosts

os.environ.update(fake_arrays.ENVIRONMENT)  # before the driver is loaded
from on_device import there

import gc3

comm = gc3.init(timeout=300)
x, y = there(np.ones(10_000)), there(np.zeros(10_000))
comm.all_reduce(x, out=y)
comm.synchronize()
if comm.rank == 0:
    threading.Timer(0.3, hosts.do, (sys.argv[1], "1")).start()
try:
    while True:
        comm.all_reduce(x, out=y)
        comm.synchronize()
except gc3.CommError as problem:
    print(f"\nlost: {' '.join(str(problem).split())}", flush=True)
before = y.memory.content
comm.close()
assert np.array_equal(y.memory.content, before)
print("closed", flush=True)
