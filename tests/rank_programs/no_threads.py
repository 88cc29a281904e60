"""What a rank can do when the system starts no thread: every call that needs one is one error, and nothing is lost."""

import resource
import threading
from collections.abc import Callable

import numpy as np
from here import error_of

import gc3
from gc3 import _core
from gc3.algorithms import load


def limit() -> None:
    """Leaves no room for the stack of a thread."""
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (4 << 20), resource.RLIM_INFINITY))


x = np.ones(8)
with gc3.init() as comm:
    program = gc3.compile(load("ring_allreduce"), R=2)
    bound = _core.MemoryBound(1, 1, 4096, 2)
    assert comm.all_reduce(x).tolist() == [1.0] * 8
    calls: list[Callable[[], object]] = [
        lambda: comm.all_reduce_async(x),
        lambda: comm.irecv(np.ones(1), 0, done=print),
        lambda: program.run([x, x]),
        lambda: bound.seconds(1),
    ]
    limit()
    said = [error_of(call) for call in calls]
    for text in said:
        assert text.startswith("GC3-R013 "), said
        assert "`ulimit -u`" in text, said
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert threading.active_count() == 1
    assert comm.all_reduce_async(x).wait().tolist() == [1.0] * 8
    request = comm.irecv(y := np.zeros(1), 0)
    comm.send(np.ones(1), 0)
    request.wait()
    assert y.tolist() == [1.0]
