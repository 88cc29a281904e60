"""One communicator used by two threads, and a program that is loaded during a call."""

import threading
import time

import numpy as np
from here import RANK

import gc3
from gc3.algorithms import load

comm = gc3.init()


def work() -> None:
    for _ in range(50):
        comm.all_reduce(np.ones(10))


threads = [threading.Thread(target=work) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
if RANK == 1:
    time.sleep(0.3)  # meanwhile rank 0 waits in its call, and regularly checks for signals
handle = comm.all_reduce_async(np.ones(10))
comm.load(gc3.compile(load("ring_allreduce"), R=2))
assert handle.wait()[0] == 2
