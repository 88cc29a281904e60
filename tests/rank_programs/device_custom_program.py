"""A custom program that writes to its input works on a copy of it; unusable buffers are refused."""

from typing import Any

import numpy as np
from here import RANK
from on_device import there

import gc3

data = gc3.collectives.custom(
    "sum",
    inputs=[2, 2],
    outputs=[0, 1],
    alias=[("input", 0)] * 2,
    expect=lambda *_: [(0, 0), (0, 1), (1, 0), (1, 1)],
)
traced = gc3.SourceProgram("busy", data, in_place=True)
with traced:
    mine = gc3.chunk(0, "in", 1).reduce(gc3.chunk(0, "in", 0))
    yours = gc3.chunk(1, "in", 1).reduce(mine)
    gc3.chunk(1, "out", 0).reduce(yours)
program = gc3.compile(traced)
x = there(np.arange(10.0) + RANK)


class Part:
    """The first half of x."""

    def __init__(self, **changes: Any) -> None:
        self.__cuda_array_interface__ = {**x.__cuda_array_interface__, "shape": (5,), **changes}


with gc3.init() as comm:
    # All ranks make as many mistakes: one rank's alone would end the communicator.
    refused: list[dict[str, Any]] = [{"count": 4}] * 3
    if RANK == 1:
        read_only = Part(data=(x.memory.address, True))
        refused = [{"out": out, "count": 5} for out in (None, there(np.zeros(4)), read_only)]
    for wrong in refused:
        try:
            comm.run(program, x, **wrong)
        except gc3.UserError as problem:
            assert problem.code == "GC3-R001", problem
        else:
            raise AssertionError(wrong)
    comm.run(program, x, out=None if RANK == 0 else Part())
    comm.synchronize()
    given = [np.arange(10.0) + s for s in range(2)]
    wanted = given[RANK].copy()
    if RANK == 1:
        wanted[:5] = np.sum([g[:5] + g[5:] for g in given], axis=0)
    assert np.array_equal(x.memory.content, wanted), x.memory.content

    # The program of a row, by the collective that it serves.
    swap = gc3.collectives.custom("swap", inputs=[1, 1], outputs=[1, 1], expect=lambda rank, _: (1 - rank, 0))
    exchange = gc3.SourceProgram("exchange", swap)
    with exchange:
        for rank in range(2):
            gc3.chunk(rank, "in", 0).copy(1 - rank, "out", 0)
    comm.load(gc3.compile(exchange))
    out = there(np.zeros(3))
    for value in (1.0, 5.0):
        assert comm.run(swap, there(np.full(3, value + RANK)), out) is out
        comm.synchronize()
        assert out.memory.content.tolist() == [value + 1 - RANK] * 3
