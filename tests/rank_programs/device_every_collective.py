"""Every collective on arrays of a device, and calls on the host's memory between them."""

from typing import Any

import numpy as np
from here import RANK, SIZE
from on_device import InterfaceArray, there

import gc3

COUNT = 1000  # of a block

with gc3.init() as comm:

    def check(x: InterfaceArray, wanted: Any) -> None:
        """The contents, when all calls have finished."""
        comm.synchronize()
        assert np.array_equal(x.memory.content, wanted), (x.memory.content, wanted)

    size = COUNT * SIZE
    own = slice(COUNT * RANK, COUNT * (RANK + 1))
    mine, everyone = np.arange(size) + RANK, [np.arange(size) + s for s in range(SIZE)]
    x, y = there(mine), there(np.zeros(size))
    assert comm.all_reduce(x, out=y) is y
    check(y, sum(everyone))
    check(x, mine)
    comm.all_reduce(x, "max", out=x)
    check(x, everyone[-1])
    x, y = there(mine), there(np.zeros(SIZE * size))
    comm.all_gather(x, out=y)
    check(y, np.concatenate(everyone))
    y = there(np.zeros(COUNT))
    comm.reduce_scatter(x, out=y)
    check(y, np.sum(everyone, axis=0)[own])
    y = there(np.zeros(size))
    comm.all_to_all(x, out=y)
    check(y, np.concatenate([e[own] for e in everyone]))
    comm.broadcast(x, root=1)
    check(x, everyone[1])
    x, y = there(mine), there(np.zeros(size))
    assert (comm.reduce(x, root=1, out=y) is y) == (RANK == 1)
    if RANK == 1:
        check(y, sum(everyone))
    y = there(np.zeros(COUNT))
    comm.scatter(x if RANK == 0 else None, out=y)
    check(y, everyone[0][own])
    handle = comm.all_reduce_async(x, out=there(np.zeros(size)))
    check(handle.wait(), sum(everyone))
    assert comm.all_reduce(np.ones(3)).tolist() == [SIZE] * 3
