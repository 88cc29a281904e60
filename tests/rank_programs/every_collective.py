"""All collectives, with the results that NumPy computes."""

import numpy as np
from here import RANK, SIZE

import gc3

with gc3.init() as comm:
    assert (comm.rank, comm.size) == (RANK, SIZE)
    for c in (0, 1, 5, 1000, 70001):
        base = np.arange(c, dtype=np.float32)
        x = base + RANK
        total = base * SIZE + SIZE * (SIZE - 1) // 2
        joined = np.concatenate([base + k for k in range(SIZE)])
        full = np.arange(c * SIZE, dtype=np.int64)
        mine = full[RANK * c : (RANK + 1) * c]
        swapped = np.concatenate([mine + k for k in range(SIZE)])
        assert np.array_equal(comm.all_reduce(x), total)
        assert np.array_equal(x, base + RANK)
        assert np.array_equal(comm.all_reduce(x, op="max"), base + SIZE - 1)
        y = x.copy()
        assert comm.all_reduce(y, out=y) is y
        assert np.array_equal(y, total)
        assert np.array_equal(comm.all_gather(x), joined)
        g = np.zeros(SIZE * c, np.float32)
        g[RANK * c : (RANK + 1) * c] = x
        comm.all_gather(g[RANK * c : (RANK + 1) * c], out=g)
        assert np.array_equal(g, joined)
        assert np.array_equal(comm.reduce_scatter(full), SIZE * mine)
        assert np.array_equal(comm.all_to_all(full + RANK), swapped)
        y = full + RANK
        comm.all_to_all(y, out=y)
        assert np.array_equal(y, swapped)
        for root in {0, SIZE - 1}:
            y = x.copy()
            assert np.array_equal(comm.broadcast(y, root), base + root)
            for got, want in ((comm.reduce(x, root=root), total), (comm.gather(x, root), joined)):
                assert (got is None) if root != RANK else np.array_equal(got, want)
            part = comm.scatter(full if root == RANK else None, root, out=np.empty(c, np.int64))
            assert np.array_equal(part, mine)
        before = comm.all_to_next(x)
        assert before is None if RANK == 0 else np.array_equal(before, base + RANK - 1)
    m = comm.all_gather(np.full((2, 3), RANK))
    assert m.shape == (2 * SIZE, 3)
    assert m[2 * SIZE - 1, 2] == SIZE - 1
    assert comm.all_reduce(1.5) == 1.5 * SIZE
    comm.barrier()
