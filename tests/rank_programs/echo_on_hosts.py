"""Two hosts: rank 0 adds its input to that of rank 1 and sends it the sum, which must arrive where it goes.

Rank 1 awaits the sum before it is sent, so it is expected. A slot that it went through would be memory of the process.
"""

import mmap
import resource
import sys

import numpy as np
from here import RANK

import gc3

BYTES = 32 << 20


def held() -> int:
    """Bytes of memory that the process has used at the most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


with gc3.init(table=sys.argv[1]) as comm:
    x = np.full(BYTES // 8, RANK + 1.0)
    out = np.ones_like(x)
    comm.barrier()
    before = held()
    comm.all_reduce(x, out=out)
    more = held() - before
    assert (out == 3).all()
    if RANK == 1:
        assert more < BYTES // 4, f"{more // mmap.PAGESIZE} pages for a message of {BYTES // mmap.PAGESIZE}"
    print("all right")
