"""Programs that run again: they do the same as at first, when their arguments are checked in Python."""

import numpy as np
from here import RANK, SIZE, error_of

import gc3
from gc3.algorithms import load

NAMES = (
    "ring_allreduce",
    "direct_allgather",
    "direct_reducescatter",
    "pairwise_alltoall",
    "flat_broadcast",
    "chain_reduce",
    "flat_gather",
    "flat_scatter",
)


def input_of(program: gc3.Program, count: int, dtype: str) -> np.ndarray:
    return (np.arange(program.collective.input_blocks(RANK) * count) % 7 + RANK).astype(dtype)


with gc3.init() as comm:
    for name in NAMES:
        for in_place in (False, True):
            for dtype in ("float32", "int64", "complex64"):
                program = gc3.compile(load(name), R=SIZE, in_place=in_place)
                for count in (3, 3, 4096, 0):
                    x = input_of(program, count, dtype)
                    outputs = program.collective.output_blocks(RANK) * count
                    wanted = comm.run(program, x, count=count, dtype=dtype)
                    given = {} if x.size else {"count": count, "dtype": dtype}
                    got = comm.run(program, x if x.size else None, **given)
                    assert (got is None) == (wanted is None), name
                    if wanted is not None:
                        assert np.array_equal(got, wanted), (name, in_place, count)
                        assert got.shape == wanted.shape
                        assert got.dtype == wanted.dtype
                    out = np.full(outputs, 77, dtype) if outputs else None
                    got = comm.run(program, x if x.size else None, out, **given)
                    assert out is None or got is out
                    assert out is None or np.array_equal(out, np.ravel(wanted)), (name, in_place, count)
                    assert np.array_equal(x, input_of(program, count, dtype)), "an input was changed"

    # A list, an array that is not contiguous, one of two dimensions, and one of another size.
    ring = gc3.compile(load("ring_allreduce"), R=SIZE)
    x = np.arange(8.0)
    for _ in range(2):
        assert comm.run(ring, [1, 2]).tolist() == [SIZE, 2 * SIZE]
        assert comm.run(ring, x[::2]).tolist() == (SIZE * x[::2]).tolist()
        assert comm.run(ring, x.reshape(2, 4)).tolist() == (SIZE * x.reshape(2, 4)).tolist()
        assert comm.run(ring, x.reshape(2, 4), op="max").tolist() == x.reshape(2, 4).tolist()
        assert comm.run(ring, x[:1], op=gc3.PreMulSum(2.0)).tolist() == [0.0]
        y = x.copy()
        assert comm.run(ring, y, y) is y
        assert y.tolist() == (SIZE * x).tolist()

    # Errors are the same, and come before other ranks are needed.
    apart = gc3.compile(load("ring_allreduce"), R=SIZE, in_place=False)
    comm.run(apart, x)
    frozen = np.zeros(8)
    frozen.flags.writeable = False
    for program, out, op, text in (
        (ring, x[1:], "sum", "7 elements"),
        (ring, np.zeros(8, np.float32), "sum", "float32"),
        (ring, frozen, "sum", "read-only"),
        (apart, x, "sum", "overlaps"),
        (ring, None, "total", "'total'"),
        (ring, None, x, "array("),
        (ring, None, "premulsum", "'premulsum'"),
    ):
        said = error_of(lambda program=program, out=out, op=op: comm.run(program, x, out, op))
        assert text in said, said
    assert "GC3-" in error_of(lambda: comm.run(ring, np.zeros(4, "datetime64[s]")))
    assert "GC3-" in error_of(lambda: comm.run(ring, np.zeros(4, np.complex64), op="max"))
    assert "masked" in error_of(lambda: comm.run(ring, np.ma.masked_array([1.0, 2.0], [True, False])))
comm.close()
assert "closed" in error_of(lambda: comm.run(ring, x))
