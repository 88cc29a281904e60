"""One of two ranks loses its privileges between calls, or during a call of the other."""

import sys
import time

import numpy as np
import privileges
from here import RANK

import gc3

HIDDEN, COUNT = int(sys.argv[1]), int(sys.argv[2])

comm = gc3.init()
x = np.arange(COUNT, dtype=np.float32)
assert (comm.all_reduce(x + RANK) == 2 * x + 1).all()
for late in (0, 1):
    if RANK == HIDDEN and late == 0:
        privileges.lose()
    if late == RANK:
        time.sleep(0.2)
    got = x + RANK
    comm.broadcast(got, root=1)
    assert (got == x + 1).all()
    assert (comm.all_gather(x + RANK)[COUNT:] == x + 1).all()
    for _ in range(3):
        assert (comm.all_reduce(x + RANK) == 2 * x + 1).all()
comm.close()
