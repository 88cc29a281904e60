"""A process is pinned by its local rank, unless a framework owns it or the user says otherwise."""

import os
import sys

from here import error_of

import gc3

CORES = os.sched_getaffinity(0)


def pinned(*, pin: bool | None = None) -> list[int]:
    """The cores of this process while it has a communicator."""
    os.sched_setaffinity(0, CORES)
    with gc3.init(0, 1, job=f"pin {os.getpid()}", pin=pin):
        return sorted(os.sched_getaffinity(0))


assert pinned() == sorted(CORES)
os.environ |= {"LOCAL_RANK": str(len(CORES) - 1), "LOCAL_WORLD_SIZE": str(len(CORES))}
assert pinned() == [max(CORES)] == pinned(pin=True)
assert pinned(pin=False) == sorted(CORES)
os.environ["TORCHELASTIC_RUN_ID"] = "none"
assert pinned() == sorted(CORES)
assert pinned(pin=True) == [max(CORES)]
del os.environ["TORCHELASTIC_RUN_ID"]
sys.modules["torch"] = sys
assert pinned() == sorted(CORES)
os.environ["GC3_PIN"] = "yes"
assert "GC3_PIN='yes' in the environment: expected 0, 1 or auto" in error_of(pinned)
