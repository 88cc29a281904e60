"""Calls by a signal handler while a call runs in the same thread: an error each, and the outer call goes on.

nested_calls.py FILE    FILE exists once the handler has run; rank 1 calls then
"""

import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from here import RANK, error_of

import gc3
from gc3.algorithms import load

waiting = Path(sys.argv[1])
x = np.ones(8)
with gc3.init() as comm:
    ring = gc3.compile(load("ring_allreduce"), R=2)
    calls: list[Callable[[], object]] = [
        lambda: comm.all_reduce(x),
        lambda: comm.run(ring, x),
        lambda: comm.all_gather_object(1),
        comm.barrier,
        comm.synchronize,
        comm.close,
        lambda: comm.empty(1),
    ]
    said: list[str] = []

    def handle(*_: object) -> None:
        """Makes calls, and looks."""
        said.extend(error_of(call) for call in calls)
        assert comm.explain("allreduce", 8).processes
        started = comm.all_reduce_async(2 * x)
        said.append(error_of(started.wait))
        said.append(error_of(lambda: comm.all_reduce(x)))
        later.append(started)
        waiting.touch()

    later: list[gc3.Handle] = []
    comm.run(ring, x)
    for outer in (comm.all_reduce, lambda x: comm.run(ring, x)):
        waiting.unlink(missing_ok=True)
        comm.barrier()
        if RANK == 0:
            signal.signal(signal.SIGALRM, handle)
            signal.setitimer(signal.ITIMER_REAL, 0.1)
        else:
            while not waiting.exists():
                time.sleep(0.02)
        assert outer(x).tolist() == [2.0] * 8
        if RANK == 1:
            later.append(comm.all_reduce_async(2 * x))
        assert later.pop().wait().tolist() == [4.0] * 8
    if RANK == 0:
        assert len(said) == 2 * (len(calls) + 2)
        assert all(text.startswith("GC3-R028 ") for text in said), said
