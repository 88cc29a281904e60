"""Ranks are killed in a call; the others go on without them, with a program for what is left of the machine.

survive.py RANK...    the first is killed in a call, the others one after the other when they have noticed
"""

import os
import signal
import sys
import time

import numpy as np
from here import RANK, SIZE

import gc3
from gc3 import synth, topologies

MACHINE = "ring:R=5"
LOST = [int(text) for text in sys.argv[1:]]


def repaired(left: list[int]) -> gc3.Program:
    """An all-reduce for the machine without the ranks that are lost."""
    gone = [r for r in range(SIZE) if r not in left]
    network = synth.Network.of(topologies.without(topologies.load(MACHINE), ranks=gone))
    with synth.Solvers() as solvers:
        found = synth.Task(synth.Session(network, solvers), "allreduce").pipelined(4 * network.ranks).result
    assert found is not None
    return found.program(in_place=False)


whole = gc3.init()
comm = whole
x = np.arange(1000) + RANK
while True:
    try:
        for _ in range(3):
            total = comm.all_reduce(x)
        if LOST[0] == RANK:
            print(f"lost at {time.monotonic():.3f}", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        total = comm.all_reduce(x)
        break
    except gc3.CommError as problem:
        assert problem.diagnostics[0].name == "RankLost", problem
        if RANK in LOST[1:]:
            os.kill(os.getpid(), signal.SIGKILL)
        comm = comm.shrink(timeout=60)
left = comm.all_gather_object(RANK)
again = comm.broadcast_object(repaired(left) if comm.rank == 0 else None)
comm.load(again)
assert again.name in comm.explain("allreduce", 1000, "int64").program
assert np.array_equal(comm.all_reduce(x), total)
print(f"done at {time.monotonic():.3f}")
assert left == [r for r in range(SIZE) if r not in LOST]
assert np.array_equal(total, len(left) * np.arange(1000) + sum(left))
comm.close()
try:
    whole.barrier()
except gc3.CommError as problem:
    print(problem.message)
whole.close()
