"""Rooted collectives that write into arrays of the caller."""

import numpy as np
from here import RANK, SIZE

import gc3

with gc3.init() as comm:
    for c in (1, 1000, 70001):
        base = np.arange(c, dtype=np.int64)
        everyone = [base + 1000 * k for k in range(SIZE)]
        total, joined = sum(everyone), np.concatenate(everyone)
        full = np.arange(SIZE * c, dtype=np.int64)
        for root in {0, SIZE - 1}:
            here = root == RANK
            for shift in (None, 0, 1, c // 2):  # the place in x at which out begins; None: they do not overlap
                memory = np.zeros(2 * c, np.int64)
                x = memory[:c]
                x[:] = everyone[RANK]
                out = None if not here else np.zeros(c, np.int64) if shift is None else memory[shift : shift + c]
                got = comm.reduce(x, root=root, out=out)
                assert got is out, ("reduce", c, root, shift)
                assert not here or np.array_equal(out, total), ("reduce", c, root, shift)
                if shift is None or not here:
                    assert np.array_equal(x, everyone[RANK])
            # The place in out at which x begins.
            for shift in (None, 0, RANK * c, (SIZE - 1) * c, min(c // 2, (SIZE - 1) * c)):
                memory = np.zeros(SIZE * c, np.int64)
                x = np.zeros(c, np.int64) if shift is None else memory[shift : shift + c]
                x[:] = everyone[RANK]
                got = comm.gather(x, root=root, out=memory if here else None)
                assert not here or (got is memory and np.array_equal(got, joined)), ("gather", c, root, shift)
                if shift is None or not here:
                    assert np.array_equal(x, everyone[RANK])
            # The place in the root's x at which out begins.
            for shift in (None, 0, root * c, (SIZE - 1) * c, min(c // 2, (SIZE - 1) * c)):
                x = full.copy() if here else None
                out = np.zeros(c, np.int64) if shift is None or not here else x[shift : shift + c]
                got = comm.scatter(x, root, out=out)
                assert got is out, ("scatter", c, root, shift)
                assert np.array_equal(out, full[RANK * c : (RANK + 1) * c]), ("scatter", c, root, shift)
                if here:
                    end = shift + c if shift is not None else 0
                    rest = slice(0, shift or 0), slice(end, None)
                    assert all(np.array_equal(x[part], full[part]) for part in rest)
            x = everyone[root].copy() if here else np.zeros(c, np.int64)
            x.flags.writeable = not here  # the root's array is only read
            assert np.array_equal(comm.broadcast(x, root), everyone[root])
