"""Collectives that only move take elements of any fixed size; those that reduce do not."""

import numpy as np
from here import RANK, SIZE, error_of

import gc3
from gc3 import algorithms

RECORD = np.dtype([("at", "i4"), ("to", "f8"), ("name", "S3")])  # of 15 bytes


def given(rank: int, count: int, dtype: np.dtype) -> np.ndarray:
    """The input of a rank."""
    return np.frombuffer(np.random.default_rng(rank).bytes(count * dtype.itemsize), dtype)


def same(a: np.ndarray | None, *parts: np.ndarray) -> bool:
    """Whether an array is made of those, byte by byte."""
    return a is not None and a.dtype == parts[0].dtype and a.tobytes() == b"".join(part.tobytes() for part in parts)


with gc3.init() as comm:
    for dtype in (RECORD, np.dtype("datetime64[s]"), np.dtype("U7"), np.dtype(np.longdouble), np.dtype("V1")):
        for count in (1, 5, 1000):
            inputs = [given(rank, count, dtype) for rank in range(SIZE)]
            long = [given(rank, count * SIZE, dtype) for rank in range(SIZE)]
            x = inputs[RANK]
            out = np.empty(count * SIZE, dtype)
            out[RANK * count :][:count] = x
            assert same(comm.all_gather(x), *inputs)
            assert same(comm.all_gather(out[RANK * count :][:count], out=out), *inputs)
            parts = [a[RANK * count :][:count] for a in long]
            assert same(comm.all_to_all(long[RANK]), *parts)
            assert same(comm.all_to_all_async(long[RANK]).wait(), *parts)
            assert same(comm.broadcast(x.copy(), root=SIZE - 1), inputs[SIZE - 1])
            gathered = comm.gather(x, root=0)
            assert gathered is None if RANK else same(gathered, *inputs)
            assert same(comm.scatter(long[0] if RANK == 0 else None, out=np.empty(count, dtype)), parts[0])
            passed = comm.all_to_next(x)
            assert passed is None if RANK == 0 else same(passed, inputs[RANK - 1])
            program = gc3.compile(algorithms.load("ring_allgather"), R=SIZE)
            assert same(comm.run(program, x), *inputs)
            made = comm.empty(count, dtype)
            made[:] = x
            assert same(comm.all_gather(made), *inputs)
    records = given(RANK, SIZE, RECORD)
    assert "GC3-M002" in error_of(lambda: comm.all_reduce(records))
    assert "GC3-M002" in error_of(lambda: comm.run(gc3.compile(algorithms.load("ring_allreduce"), R=SIZE), records))
    assert "no values of a fixed size" in error_of(lambda: comm.all_gather(np.array([None])))
    wrong = np.empty(SIZE * SIZE * RECORD.itemsize, np.uint8)
    assert "out is of uint8, the input of [('at'" in error_of(lambda: comm.all_gather(records, out=wrong))
