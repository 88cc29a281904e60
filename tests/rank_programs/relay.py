"""A program in which rank 1 only forwards data, so that it must give the count."""

import numpy as np
from here import RANK

import gc3

data = gc3.collectives.custom("pass", inputs=[2, 0, 0], outputs=[0, 0, 2], expect=lambda _, i: (0, i))


@gc3.algorithm(lambda: data)
def relay() -> None:
    gc3.chunk(0, "in", 0, 2).copy(1, "sc", 0).copy(2, "out", 0)


with gc3.init() as comm:
    program = gc3.compile(relay)
    for dtype in (np.float32, np.int8):
        x = np.arange(10).astype(dtype) if RANK == 0 else None
        out = comm.run(program, x, out=np.zeros(10, dtype) if RANK == 2 else None, count=5, dtype=dtype)
        assert out is None if RANK < 2 else out.tolist() == list(range(10))
    for wrong, code in (
        (dict(count=-1), "GC3-R001"),
        (dict(count="2"), "GC3-R001"),
        (dict(count=2, dtype="object"), "GC3-M002"),
        (dict(count=2, dtype="int8", out=np.ones(4, np.float32)), "GC3-R001"),
    ):
        try:
            comm.run(program, None, **wrong)
        except gc3.UserError as problem:
            assert problem.code == code, problem
        else:
            raise AssertionError(wrong)
    # What one rank refuses is told to the others, and ends the communicator.
    try:
        comm.run(program, np.ones(4, np.float32) if RANK == 0 else None, count=2 if RANK == 2 else None)
    except gc3.UserError as problem:
        assert (RANK, problem.code) == (1, "GC3-R001"), problem
        assert "pass count=" in str(problem), problem
    except gc3.CommError as problem:
        assert (RANK != 1, problem.code) == (True, "GC3-R010"), problem
        assert "rank 1: a call with wrong arguments" in str(problem), problem
    else:
        assert RANK == 0  # it sends, and may have ended its part before
