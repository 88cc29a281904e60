"""Every algorithm of the library serves blocks of any lengths: random counts, types and modes against NumPy."""

import itertools
import os

import numpy as np
from here import RANK, SIZE
from library import compilers

import gc3
from gc3.datatypes import FORMATS

KINDS = ("alltoall", "allgather", "reducescatter", "gather", "scatter")
TYPES = ("int32", "uint8", "float32", "int64")
INSTANCES = [int(i) for i in os.environ.get("INSTANCES", "1,2").split(",")]


def matrices(kind: str, seed: int) -> list[np.ndarray]:
    """Counts of several kinds: small, uneven, empty, one rank with everything, several tiles."""
    rng = np.random.default_rng(seed)
    n = SIZE * SIZE if kind == "alltoall" else SIZE
    one = np.zeros(n, int)
    one[rng.integers(n)] = 1000
    long = rng.integers(0, 5, n)
    long[rng.integers(n)] = 70_001
    zipf = np.minimum(rng.zipf(1.5, n), 3000)
    return [rng.integers(0, 7, n), zipf, one, np.full(n, 11), np.zeros(n, int), long]


def data(kind: str, rank: int, counts: np.ndarray, dtype: str) -> np.ndarray:
    """The input of a rank: numbers that tell where they come from, and add up exactly."""
    if kind == "alltoall":
        size = counts.reshape(SIZE, SIZE)[rank].sum()
    else:
        size = counts[rank] if kind in {"allgather", "gather"} else counts.sum()
    return ((np.arange(size) * 7 + rank * 13) % 31).astype(dtype)


def parts(x: np.ndarray, counts: np.ndarray) -> list[np.ndarray]:
    """An array cut by its counts."""
    return np.split(x, np.cumsum(counts)[:-1])


def expected(kind: str, counts: np.ndarray, dtype: str, root: int) -> np.ndarray | None:
    """What this rank gets."""
    inputs = [data(kind, rank, counts, dtype) for rank in range(SIZE)]
    if kind == "alltoall":
        rows = counts.reshape(SIZE, SIZE)
        return np.concatenate([parts(inputs[s], rows[s])[RANK] for s in range(SIZE)])
    if kind in {"allgather", "gather"}:
        return np.concatenate(inputs) if kind == "allgather" or root == RANK else None
    if kind == "scatter":
        return parts(inputs[root], counts)[RANK]
    return np.sum([parts(x, counts)[RANK] for x in inputs], axis=0).astype(dtype)


def all_to_all(comm: gc3.Communicator, x: np.ndarray, rows: np.ndarray, how: int) -> np.ndarray:
    """By arrays or lists, with all counts or those of this rank alone."""
    if how == 0:
        return comm.all_to_all_v(x, rows)
    if how == 1:
        return comm.all_to_all_v(x, rows[RANK], rows[:, RANK])
    return np.concatenate(comm.all_to_all_v_async([p.copy() for p in parts(x, rows[RANK])]).wait())


def made(comm: gc3.Communicator, kind: str, counts: np.ndarray, dtype: str, root: int, how: int) -> np.ndarray | None:
    """The same by the communicator."""
    x = data(kind, RANK, counts, dtype)
    if kind == "alltoall":
        return all_to_all(comm, x, counts.reshape(SIZE, SIZE), how)
    if kind == "allgather" and how == 2:
        return np.concatenate(comm.all_gather_v(x, out=[np.empty(c, dtype) for c in counts]))
    if kind == "allgather":
        return comm.all_gather_v(x, counts if how else None)
    if kind == "reducescatter":
        return comm.reduce_scatter_v(x, counts) if how else comm.reduce_scatter_v(parts(x, counts))
    if kind == "gather":
        return comm.gather_v(x, root=root)
    out = np.empty(counts[RANK], dtype)
    return comm.scatter_v(x if root == RANK else None, counts, root=root, out=out)


def in_place(comm: gc3.Communicator, kind: str, counts: np.ndarray, dtype: str) -> np.ndarray:
    """The same in place."""
    x = data(kind, RANK, counts, dtype)
    if kind == "alltoall":
        return comm.all_to_all_v(x, counts.reshape(SIZE, SIZE), out=x)
    first = int(counts[:RANK].sum())
    own = slice(first, first + int(counts[RANK]))
    if kind == "allgather":
        whole = np.full(counts.sum(), 99, dtype)
        whole[own] = x
        return comm.all_gather_v(whole[own], counts, out=whole)
    return comm.reduce_scatter_v(x, counts, out=x[own])


def programs(kind: str, inplace: bool) -> list[gc3.Program]:
    """The algorithms of the library, by themselves and in several instances."""
    found = []
    for build in compilers(kind):
        for instances in INSTANCES:
            found.append(build(instances=instances, in_place=inplace, protocol=FORMATS[len(found) % 3]))
    return found


def symmetric(counts: np.ndarray) -> np.ndarray:
    """Counts by which any two ranks send each other equally much."""
    rows = counts.reshape(SIZE, SIZE)
    return np.minimum(rows, rows.T).ravel()


def same(a: np.ndarray | None, b: np.ndarray | None) -> bool:
    """Whether two results are equal."""
    return (a is None) == (b is None) and (a is None or (a.dtype == b.dtype and np.array_equal(a, b)))


with gc3.init() as comm:
    done = 0
    for kind, inplace in itertools.product(KINDS, (False, True)):
        if inplace and kind in {"gather", "scatter"}:
            continue
        for number, program in enumerate(programs(kind, inplace)):
            program.check_v_form()
            comm.load(program)
            for case, made_counts in enumerate(matrices(kind, number)):
                counts = symmetric(made_counts) if inplace and kind == "alltoall" else made_counts
                dtype = TYPES[(number + case) % len(TYPES)]
                if inplace:
                    result = in_place(comm, kind, counts, dtype)
                else:
                    result = made(comm, kind, counts, dtype, 0, (number + case) % 3)
                wanted = expected(kind, counts, dtype, 0)
                assert same(result, wanted), (program.name, program.protocol, inplace, dtype, counts.tolist())
                done += 1
    assert done >= 6 * len(KINDS)
