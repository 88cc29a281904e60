"""The ranks of a tool may not map their data."""

import resource

import numpy as np

import gc3
from gc3.comm.tool_ranks import Ranks

program = gc3.compile(gc3.algorithms.load("ring_allreduce"), R=2)
with Ranks(program) as started:
    for process in started.processes:
        resource.prlimit(process, resource.RLIMIT_AS, (1 << 20, 1 << 20))
    try:
        started.time([np.ones(1 << 22, np.float32)] * 2, warmup=0, iterations=1)
    except gc3.Gc3Error as problem:
        assert problem.code == "GC3-R013", problem.code
        assert "Cannot allocate memory" in str(problem)
    else:
        raise AssertionError("nothing was refused")
