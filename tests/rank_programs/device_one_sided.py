"""One-sided programs on arrays of a device: device_one_sided.py right|differ|grows|other|missing FILE."""

import sys
import time
from pathlib import Path

import numpy as np
from here import RANK, SIZE, error_of
from on_device import there

import gc3
from gc3 import algorithms
from gc3.runtime.checking import Case

NAMES = ("allpairs_allreduce", "ring_allreduce", "direct_allgather", "direct_reducescatter", "direct_alltoall")


def direct(name: str, *, in_place: bool = False) -> gc3.runtime.direct.DirectProgram:
    """A program of the library, one-sided."""
    return gc3.compile(algorithms.load(name), R=SIZE, memory="direct", in_place=in_place)


def check(comm: gc3.Communicator, program: gc3.runtime.direct.DirectProgram, count: int, dtype: str, op: str) -> None:
    """Runs a program twice, and compares this rank's output with NumPy's."""
    model = program.collective
    case = Case(model, count, dtype, op)
    inputs = case.inputs()
    for _ in range(2):
        x = there(inputs[RANK], dtype)
        out = x if model.in_place else there(np.zeros(model.output_blocks(RANK) * count), dtype)
        comm.run(program, x, out, op, count=count)
        comm.synchronize()
        content = out.memory.content.reshape(-1)
        for rank, start, values in case.expected(inputs):
            if rank == RANK:
                np.testing.assert_array_equal(content[start : start + values.size], values)


def right() -> None:
    """Each kind of collective, sizes that grow, and reductions that scale."""
    with gc3.init() as comm:
        for name in NAMES:
            program = direct(name)
            for count in (1, program.collective.chunks * 40, 100_003, 7):
                check(comm, program, count, "int32", "sum")
        program = direct("allpairs_allreduce", in_place=True)
        for count, op in ((99, "sum"), (50_000, "max")):
            check(comm, program, count, "float64", op)
        x = there(np.full(10, RANK))
        for op, expected in (("avg", (SIZE - 1) / 2), (gc3.PreMulSum(2.0), SIZE * (SIZE - 1))):
            out = there(np.zeros(10))
            comm.run(direct("allpairs_allreduce"), x, out, op)
            comm.synchronize()
            assert out.memory.content.tolist() == [expected] * 10
        assert x.memory.content.tolist() == [RANK] * 10


def call(comm: gc3.Communicator, program: gc3.runtime.direct.DirectProgram, count: int) -> None:
    """A call that has ended when this returns."""
    comm.run(program, there(np.ones(count)), there(np.zeros(count)))
    comm.synchronize()


def differ() -> None:
    """Rank 1 makes a call of another size."""
    with gc3.init() as comm:
        program = direct("allpairs_allreduce")
        call(comm, program, 96)
        print(error_of(lambda: call(comm, program, 48 if RANK == 1 else 96)))


def grows() -> None:
    """Rank 1 makes a call that needs more memory than any before."""
    with gc3.init() as comm:
        program = direct("allpairs_allreduce")
        call(comm, program, 96)
        print(error_of(lambda: call(comm, program, 100_000 if RANK == 1 else 96)))


def other() -> None:
    """Rank 1 runs another program."""
    with gc3.init() as comm:
        print(error_of(lambda: call(comm, direct("ring_allreduce" if RANK == 1 else "allpairs_allreduce"), 96)))


def missing() -> None:
    """Rank 1 makes one call less, and stays until the others have been told so."""
    told = Path(sys.argv[2])
    with gc3.init() as comm:
        program = direct("allpairs_allreduce")
        call(comm, program, 96)
        if RANK == 0:
            print(error_of(lambda: call(comm, program, 96)))
            told.touch()
        while not told.exists():
            time.sleep(0.02)


{"right": right, "differ": differ, "grows": grows, "other": other, "missing": missing}[sys.argv[1]]()
