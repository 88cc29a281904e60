"""The ranks of a tool may not map their data."""

import resource
from pathlib import Path

import numpy as np

import gc3
from gc3.comm.tool_ranks import Ranks

program = gc3.compile(gc3.algorithms.load("ring_allreduce"), R=2)
data = np.ones(1 << 22, np.float32)
with Ranks(program) as started:
    for process in started.processes:
        mapped = int(Path(f"/proc/{process}/statm").read_text().split()[0]) * resource.getpagesize()
        limit = mapped + data.nbytes // 2  # room for a message that says what was refused, none for the data
        resource.prlimit(process, resource.RLIMIT_AS, (limit, limit))
    try:
        started.time([data] * 2, warmup=0, iterations=1)
    except gc3.Gc3Error as problem:
        assert problem.code == "GC3-R013", problem.code
        assert "Cannot allocate memory" in str(problem)
    else:
        raise AssertionError("nothing was refused")
