"""An engine on a device is dropped while another thread connects one: `python device_engine_dropped.py` on two hosts.

The thread that connects has the lock of the proxy, and asks Python whether it is interrupted. Rank 1 connects when a
third thread of rank 0 says so.
"""

import os
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import fake_arrays

os.environ.update(fake_arrays.ENVIRONMENT)  # before the driver is loaded
import numpy as np

import gc3
from gc3 import _core
from gc3.algorithms import load
from gc3.cuda.driver import runtime

with gc3.init() as comm:
    program = gc3.compile(load("ring_allreduce"), R=2)
    proxy = _core.make_cuda_proxy(_core.Joined.of(comm))
    assert proxy is not None
    engines = [_core.CudaRankEngine(runtime(), program.core, comm.rank, 0, 0, 0, 60.0, None, proxy) for _ in range(2)]
    handles = [bytes(part) for part in comm.all_gather_object(engines[0].handle())]
    if comm.rank == 0:
        connecting = threading.Thread(target=engines[0].connect, args=(handles,))
        connecting.start()

        def go() -> None:
            """Runs when the main thread waits for the lock."""
            time.sleep(0.3)
            comm.send(np.ones(1), 1)

        going = threading.Thread(target=go)
        time.sleep(0.3)
        going.start()
        engines.pop()
        going.join()
        connecting.join()
    else:
        comm.recv(np.ones(1), 0)
        engines[0].connect(handles)
    comm.barrier()
    proxy.close()
print("all right", flush=True)
