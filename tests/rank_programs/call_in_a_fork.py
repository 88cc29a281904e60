"""A fork cannot use the communicator of its parent, whatever the parent's threads do: each call is one error."""

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from here import RANK, SIZE, error_of

import gc3
from gc3.algorithms import load
from gc3.comm.spec import Spec

x = np.ones(SIZE)
comm = gc3.init()
ring = gc3.compile(load("ring_allreduce"), R=SIZE)
registered = comm.empty(SIZE)
calls: dict[str, Callable[[], object]] = {
    "all_reduce": lambda: comm.all_reduce(x),
    "new size": lambda: comm.all_to_all(np.ones(7 * SIZE)),
    "registered": lambda: comm.all_reduce(registered, out=registered),
    "started": lambda: comm.all_reduce_async(x),
    "v-form": lambda: comm.all_to_all_v(x, [1] * SIZE, [1] * SIZE),
    "object": lambda: comm.all_gather_object(1),
    "barrier": comm.barrier,
    "send": lambda: comm.send(x, (RANK + 1) % SIZE),
    "irecv": lambda: comm.irecv(x, (RANK + 1) % SIZE),
    "sendrecv": lambda: comm.sendrecv(x, (RANK + 1) % SIZE, x.copy(), (RANK + 1) % SIZE),
    "run": lambda: comm.run(ring, x),
    "new program": lambda: comm.run(gc3.compile(load("ring_allreduce"), R=SIZE, instances=2), x),
    "load": lambda: comm.load(ring),
    "time": lambda: comm.time("allreduce", 8),
    "split": lambda: comm.split(0),
    "group": lambda: comm.group(range(SIZE)),
    "shrink": comm.shrink,
    "empty": lambda: comm.empty(4),
    "synchronize": comm.synchronize,
}


def in_a_fork() -> None:
    """Makes all calls in a fork, which ends as any other process."""
    child = os.fork()
    if child:
        assert os.waitpid(child, 0)[1] == 0
        return
    signal.alarm(60)
    wrong = {name: text for name, call in calls.items() if not (text := error_of(call)).startswith("GC3-R012 ")}
    if wrong:
        print(wrong, flush=True)
        os._exit(2)
    comm.abort()
    comm.close()
    raise SystemExit


in_a_fork()
for known in ("all_reduce", "registered", "run"):  # which the parent has made, too
    calls[known]()
in_a_fork()

# Beside a thread that has the lock of the programs.
inside, go_on, compiled = threading.Event(), threading.Event(), Spec.compile


def compile_late(self: Spec, *given: Any, **how: Any) -> gc3.Program:
    inside.set()
    go_on.wait()
    return compiled(self, *given, **how)


Spec.compile = compile_late
compiles = threading.Thread(target=lambda: comm.all_gather(x))
compiles.start()
inside.wait()
in_a_fork()
go_on.set()
compiles.join()
Spec.compile = compiled

# Beside a thread that is in a call.
if RANK == 0:
    waits = threading.Thread(target=comm.barrier)
    waits.start()
    time.sleep(0.2)
    in_a_fork()
    comm.send(x, 1)
    waits.join()
else:
    if RANK == 1:
        comm.recv(x, 0)
    comm.barrier()
assert comm.all_reduce(1) == SIZE
