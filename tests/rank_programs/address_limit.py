"""Arrays for which there are no addresses take nothing from the job."""

import os
import resource

import gc3


def addresses() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def shared() -> int:
    """The bytes that the file of shared memory holds."""
    with os.scandir("/proc/self/fd") as entries:
        there = [e.path for e in list(entries) if os.path.lexists(e.path)]
        return sum(os.stat(path).st_blocks * 512 for path in there if "gc3" in os.readlink(path))


with gc3.init() as comm:
    kept = [comm.empty(4096, "uint8")]
    resource.setrlimit(resource.RLIMIT_AS, (addresses() + (200 << 20), resource.RLIM_INFINITY))
    before = shared()
    for _ in range(5):
        try:
            kept.append(comm.empty(150 << 20, "uint8"))
        except gc3.UserError as problem:
            assert "may map no more" in str(problem)
        else:
            raise AssertionError
    assert shared() == before
    kept.append(comm.empty(1 << 20, "uint8"))
    with comm.group([0]) as group:
        group.barrier()
    with gc3.init() as again:
        again.barrier()
