"""One-sided programs among other calls: buffers in turn, memory that is not registered, a row of a table, differences.

Argument: a table with a row of direct_allreduce, one-sided.
"""

import sys

import numpy as np
from here import RANK, SIZE, error_of

import gc3
from gc3 import algorithms
from gc3.runtime.direct import DirectProgram

DIRECT = gc3.compile(algorithms.load("ring_allreduce"), R=SIZE, memory="direct", in_place=False)

with gc3.init(table=sys.argv[1]) as comm:

    def said() -> str:
        """How the last call was served."""
        return comm.explain("allreduce", 1).one_sided

    buffers = [(comm.empty(11 + k, "int64"), comm.empty(11 + k, "int64")) for k in range(3)]
    for turn in range(2000):
        x, out = buffers[turn % 3]
        x[...] = turn + RANK
        comm.run(DIRECT, x, out)
        assert (out == SIZE * turn + sum(range(SIZE))).all(), turn
        if turn % 500 == 0:
            assert comm.all_reduce(np.array([turn])).item() == SIZE * turn
    assert said() == "ring_allreduce"
    result = comm.run(DIRECT, comm.register(np.arange(20.0)))
    assert said() == "ring_allreduce"
    assert result.tolist() == [SIZE * i for i in range(20)]
    for op in ("avg", gc3.PreMulSum(2.0)):
        result = comm.run(DIRECT, comm.register(np.arange(20.0)), op=op)
        assert said() == "ring_allreduce"
        assert result.tolist() == [i * (1 if op == "avg" else 2 * SIZE) for i in range(20)]

    # One rank's input is elsewhere: it runs on a copy until the ranks agree on the messages of the same algorithm.
    why = "the input of rank 1 is not registered memory"
    x = np.full(100, RANK) if RANK == 1 else comm.register(np.full(100, RANK))
    heard = set()
    for _ in range(32):
        assert (comm.run(DIRECT, x) == sum(range(SIZE))).all()
        heard.add(said())
    copied = f"ring_allreduce (on a copy in the last call: {why})" if RANK == 1 else "ring_allreduce"
    assert heard == {copied, f"ring_allreduce (by messages in the last call: {why})"}, heard
    assert "by messages" in said()
    y = comm.register(x)
    assert comm.register(y) is y
    assert (comm.run(DIRECT, y) == sum(range(SIZE))).all()
    assert said() == "ring_allreduce"
    alone = DirectProgram(DIRECT.core)  # without messages
    for given in (x, y, x):
        assert (comm.run(alone, given) == sum(range(SIZE))).all()
        assert ("on a copy" in said()) == (RANK == 1 and given is x), said()

    # A row of the table.
    for given in (comm.register(np.full(1000, RANK)), np.full(1000, RANK)):
        for k in range(40):
            out = comm.empty(1000, "int64") if k % 2 else given.copy()
            out[...] = given
            for source in (given, out):  # the second is in place
                in_turn = comm.all_reduce(source, out=out)
                assert (in_turn == sum(range(SIZE))).all()
                out[...] = given
            assert (comm.all_reduce_async(given, out=out).wait() == sum(range(SIZE))).all()
    assert (comm.all_reduce(given, out=comm.empty(1000, "int64")) == sum(range(SIZE))).all()
    why = "the input of rank 0 is not registered memory"
    assert f"direct_allreduce (by messages in the last call: {why})" in said().split("; "), said()
    assert len(comm.time("allreduce", 1000, buffers=(comm.empty(1000), comm.empty(1000)), iterations=3)) == 3
    assert "direct_allreduce" in said().split("; "), said()
    assert str(comm.explain("allreduce", 1000)).splitlines()[0].endswith(", direct on registered memory")

    # A new result is where all ranks reach it, if the input is and the row is one-sided.
    x = comm.register(np.full(1000, RANK))
    for _ in range(40):
        assert (comm.all_reduce(x) == sum(range(SIZE))).all()
        assert "direct_allreduce" in said().split("; "), said()
    assert comm.register(result := comm.all_reduce(x)) is result
    assert comm.register(result := comm.all_reduce(x[:4])) is not result  # of messages
    assert comm.register(result := comm.all_reduce(x + 0)) is not result
    grid = comm.register(np.ones((10, 50, 2), np.float32))
    assert comm.all_reduce(grid).tolist() == np.full((10, 50, 2), SIZE).tolist()
    assert "\n  on other memory: " in str(comm.explain("allreduce", 1000))

    print(error_of(lambda: comm.run(alone, comm.empty(5 + RANK % 2), comm.empty(5 + RANK % 2))))
