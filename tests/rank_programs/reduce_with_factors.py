"""Calls of premulsum on a communicator, in and out of place, with the factor of each rank."""

import numpy as np
from here import RANK, SIZE

import gc3
from gc3 import algorithms


def given(rank: int, count: int) -> np.ndarray:
    """The input of a rank."""
    return np.arange(count, dtype=np.int64) + rank


with gc3.init() as comm:
    for count in (1, 5, 1000, 70001):
        x = given(RANK, count)
        weighted = sum((given(rank, count) * (rank + 1) for rank in range(SIZE)), np.zeros(count, np.int64))
        op = gc3.PreMulSum(RANK + 1)
        assert np.array_equal(comm.all_reduce(x, op), weighted)
        assert np.array_equal(x, given(RANK, count))
        assert np.array_equal(comm.all_reduce_async(x, op).wait(), weighted)
        assert np.array_equal(comm.all_reduce(x, op, out=x), weighted)
        at_root = comm.reduce(given(RANK, count), gc3.PreMulSum([rank + 1 for rank in range(SIZE)]), root=SIZE - 1)
        assert (at_root is None) == (RANK != SIZE - 1)
        assert at_root is None or np.array_equal(at_root, weighted)

        # In place, only the part of the input that is the output changes.
        whole = np.tile(given(RANK, count), SIZE)
        before = whole.copy()
        own = slice(RANK * count, (RANK + 1) * count)
        comm.reduce_scatter(whole, op, out=whole[own])
        assert np.array_equal(whole[own], weighted)
        whole[own] = before[own]
        assert np.array_equal(whole, before)

        # The same buffers with another factor are another call.
        for factor in (2, 3):
            assert np.array_equal(comm.all_reduce(before, gc3.PreMulSum(factor)), factor * comm.all_reduce(before))

        program = gc3.compile(algorithms.load("ring_allreduce"), R=SIZE)
        assert np.array_equal(comm.run(program, given(RANK, count), op=op), weighted)
