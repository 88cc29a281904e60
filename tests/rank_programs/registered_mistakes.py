"""Registered memory that is resized, freed, registered again, cut, overlapped or taken elsewhere; then rank 1 dies.

Argument: seconds after which rank 1 is killed, which it spends almost entirely between its signals and its waits.
"""

import gc
import os
import signal
import sys
import threading

import numpy as np
from here import RANK, SIZE, error_of

import gc3
from gc3 import algorithms

DIRECT = [
    gc3.compile(algorithms.load("ring_allreduce"), R=n, memory="direct", in_place=False) for n in (SIZE, SIZE - 1)
]
RANKS = sum(range(SIZE))

with gc3.init() as comm:

    def reached(call: gc3.Communicator = comm) -> bool:
        """Whether the last call was served without a copy and without messages."""
        return "ring_allreduce" in call.explain("allreduce", 1).one_sided.split("; ")

    x = comm.register(np.arange(20.0))
    for check in (True, False):
        try:
            x.resize(40, refcheck=check)
        except ValueError as problem:
            assert "does not own its data" in str(problem)
        else:
            raise AssertionError("registered memory was resized")
    # Registered twice, or a part: the same memory. What is not contiguous is copied, as for any call.
    part, apart = x[5:15], x[::2]
    assert comm.register(x) is x
    assert comm.register(part) is part
    assert comm.register(apart) is not apart
    assert (comm.run(DIRECT[0], part) == SIZE * part).all()
    assert reached()
    assert (comm.run(DIRECT[0], comm.register(apart)) == SIZE * apart).all()
    assert reached()
    for out in (x[7:17], part):
        told = error_of(lambda out=out: comm.run(DIRECT[0], part, out))
        assert f"the output of rank {RANK} overlaps the input" in told, told
    # Freed: views keep the memory, and so does a call that has been started.
    del x, apart
    gc.collect()
    assert (comm.run(DIRECT[0], part) == SIZE * np.arange(5.0, 15.0)).all()
    assert reached()
    given = comm.register(np.full(100_000, RANK))
    started = comm.all_reduce_async(given)
    del given
    gc.collect()
    refill = comm.empty(100_000, "int64")
    refill.fill(-1)
    assert (started.wait() == RANKS).all()
    # In a fork of the process, and in another communicator of it.
    child = os.fork()
    if child == 0:
        uses = (lambda: comm.run(DIRECT[0], part), lambda: comm.register(np.ones(3)), lambda: comm.empty(3))
        right = all("GC3-R012" in error_of(use) for use in uses)
        del part
        gc.collect()
        os._exit(0 if right else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert (comm.run(DIRECT[0], part) == SIZE * np.arange(5.0, 15.0)).all()
    with gc3.init() as other:
        assert (other.run(DIRECT[0], part) == SIZE * np.arange(5.0, 15.0)).all()
        assert reached(other)
        comm.barrier()  # else a rank that is still in the last call gets the error of the next one
        longer = other.register(np.ones(10 + RANK))
        print(error_of(lambda: other.run(DIRECT[0], longer)), flush=True)

    x, out = comm.register(np.full(2_000_000, RANK)), comm.empty(2_000_000, "int64")
    if RANK == 1:
        threading.Timer(float(sys.argv[1]), os.kill, (os.getpid(), signal.SIGKILL)).start()
    try:
        while True:
            comm.run(DIRECT[0], x, out)
            assert (out == RANKS).all()
    except gc3.CommError as problem:
        print(problem.code, problem.message)
    assert (x == RANK).all()
    with comm.shrink() as left:
        assert (left.run(DIRECT[1], x, out) == RANKS - 1).all()
        assert reached(left)
assert "GC3-R011" in error_of(lambda: comm.run(DIRECT[0], x))
assert (x == RANK).all()  # the memory outlives its communicator
print("done")
