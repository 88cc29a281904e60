"""One of many ranks loses its privileges between calls."""

import numpy as np
import privileges
from here import RANK, SIZE

import gc3

comm = gc3.init()
x = np.arange(300_000, dtype=np.int64)
for turn in range(6):
    if turn == 2 and RANK == 1:
        privileges.lose()
    assert (comm.all_reduce(x + RANK) == SIZE * x + SIZE * (SIZE - 1) // 2).all()
    assert (comm.all_to_all(np.repeat(x[: SIZE * 10_000], 2)) >= 0).all()
    part = comm.broadcast(x + RANK, root=turn % SIZE)
    assert (part == x + turn % SIZE).all()
