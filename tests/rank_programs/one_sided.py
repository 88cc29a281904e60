"""Every rank runs a part of the library one-sidedly, on registered memory. Arguments: every n-th program, the first."""

from __future__ import annotations

import itertools
import sys

import numpy as np
from library import compilers

import gc3
from gc3 import algorithms, collectives
from gc3.runtime.buffers import aliased
from gc3.runtime.checking import Case
from gc3.runtime.direct import DirectProgram


def check(comm: gc3.Communicator, program: DirectProgram, count: int, dtype: str, op: str) -> None:
    """Runs the program twice, on buffers in turn, and compares this rank's result with NumPy's."""
    case = Case(program.collective, count, dtype, op)
    inputs, model = case.inputs(), program.collective
    blocks = model.output_blocks(comm.rank)
    for _ in range(2):
        x = None if inputs[comm.rank] is None else comm.register(inputs[comm.rank])
        out = comm.empty(blocks * count, dtype) if blocks else None
        place = aliased(model, comm.rank)
        if place is not None and place[0] == "output" and x is not None and out is not None:
            out = x.reshape(-1)[place[1] * count :][: out.size]
        comm.run(program, x, out, op, count=count, dtype=dtype)
        for rank, start, values in case.expected(inputs):
            if rank == comm.rank:
                assert out is not None
                np.testing.assert_array_equal(out.reshape(-1)[start : start + values.size], values)
        said = comm.explain(model.name, count, dtype).one_sided if model.name in collectives.BUILTIN else ""
        assert "by messages" not in said, said


KINDS = sorted({entry.collective_name for entry in algorithms.catalogue().values()})

with gc3.init() as comm:
    programs = itertools.islice(itertools.chain(*map(compilers, KINDS)), int(sys.argv[2]), None, int(sys.argv[1]))
    for compiled, in_place in itertools.product(programs, (False, True)):
        program = compiled(memory="direct", in_place=in_place)
        even = program.collective.chunks * 5
        for count, dtype, op in ((even, "int32", "sum"), (1009, "float64", "max"), (1, "uint8", "min")):
            check(comm, program, count, dtype, op)
