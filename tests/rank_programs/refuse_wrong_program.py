"""All uses of a wrong program, whose file the command line names, are refused."""

import sys

import numpy as np

import gc3

program = gc3.Program.load(sys.argv[1])
uses = (
    lambda: comm.run(program, np.ones(1)),
    lambda: comm.time("allreduce", 1, program=program, in_place=True),
    lambda: comm.load(program),
)
with gc3.init() as comm:
    for use in uses:
        try:
            use()
        except gc3.UserError as problem:
            assert problem.code == "GC3-V008", problem
        else:
            raise AssertionError("it ran")
    assert comm.all_reduce(np.ones(1)) == 2
