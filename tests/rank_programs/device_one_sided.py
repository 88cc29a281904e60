"""One-sided programs on arrays of a device: device_one_sided.py CASE [FILE]; the cases are the functions below."""

import ctypes
import itertools
import os
import sys
import time
from pathlib import Path

import numpy as np
from here import RANK, SIZE, error_of
from on_device import there

import gc3
from fake_arrays import Driver, InterfaceArray
from gc3 import algorithms
from gc3.runtime.buffers import aliased
from gc3.runtime.checking import Case

NAMES = ("allpairs_allreduce", "ring_allreduce", "direct_allgather", "direct_reducescatter", "direct_alltoall")


def direct(name: str, *, in_place: bool = False) -> gc3.runtime.direct.DirectProgram:
    """A program of the library, one-sided."""
    return gc3.compile(algorithms.load(name), R=SIZE, memory="direct", in_place=in_place)


class Part:
    """Elements of an array on the device, from `first` on."""

    def __init__(self, array: InterfaceArray, first: int, size: int) -> None:
        """Copies nothing."""
        like = array.memory.like
        address = array.memory.address + first * like.itemsize
        self.__cuda_array_interface__ = {
            **array.__cuda_array_interface__,
            "data": (address, False),
            "shape": (size,),
        }


def check(comm: gc3.Communicator, program: gc3.runtime.direct.DirectProgram, count: int, dtype: str, op: str) -> None:
    """Runs a program twice, and compares this rank's output with NumPy's."""
    model = program.collective
    case = Case(model, count, dtype, op)
    inputs, size = case.inputs(), model.output_blocks(RANK) * count
    buffer, block = aliased(model, RANK) or ("", 0)
    for _ in range(2):
        values = inputs[RANK].reshape(-1)
        if buffer == "input":
            whole = np.zeros(size, dtype)
            whole[block * count :][: values.size] = values
            out, begin = there(whole, dtype), 0
            comm.run(program, Part(out, block * count, values.size), out, op, count=count)
        elif buffer == "output":
            out, begin = there(values, dtype), block * count
            comm.run(program, out, Part(out, begin, size), op, count=count)
        else:
            out, begin = there(np.zeros(size), dtype), 0
            comm.run(program, there(values, dtype), out, op, count=count)
        comm.synchronize()
        for rank, start, expected in case.expected(inputs):
            if rank == RANK:
                found = out.memory.content.reshape(-1)[begin + start :][: expected.size]
                np.testing.assert_array_equal(found, expected)


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


def switch() -> None:
    """Sums and copies through the switch, which the types and operations have that it knows, others without it."""
    with gc3.init() as comm:
        for name, size in (("nvls_allreduce", "R"), ("nvls_allgather", "G"), ("nvls_reducescatter", "G")):
            for in_place in (False, True):
                program = gc3.compile(algorithms.load(name), **{size: SIZE}, memory="direct", in_place=in_place)
                for dtype, op in itertools.product(("float32", "float16", "int32", "int64", "int8"), ("sum", "max")):
                    for count in (program.collective.chunks * 32, 1001):
                        check(comm, program, count, dtype, op)
        print(comm.explain("allreduce", 1).devices)


def broken() -> None:
    """The same with a switch that does nothing, which the results tell."""
    with gc3.init() as comm:
        program = gc3.compile(algorithms.load("nvls_allreduce"), R=SIZE, memory="direct")
        try:
            check(comm, program, 96, "int32", "sum")
        except AssertionError as problem:
            print(problem)


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


def unreached() -> None:
    """Rank 1 cannot open the others' memory for a larger call. Others go on, and so does the same call again."""
    if RANK == 1:  # of two arenas, two rooms, and the next two
        os.environ["FAKE_CUDA"] += " fail=cuIpcOpenMemHandle_v2:5"
    with gc3.init() as comm:
        program = direct("allpairs_allreduce")
        call(comm, program, 96)
        print(error_of(lambda: call(comm, program, 100_000)))
        check(comm, program, 96, "int32", "sum")
        check(comm, program, 100_000, "int32", "sum")


def replayed() -> None:
    """A graph uses the memory of its capture: after a larger call rank 0 replays it, and the others make the call."""
    driver, stream = Driver(), ctypes.c_void_p()
    graph, made = ctypes.c_void_p(), ctypes.c_void_p()
    with gc3.init() as comm:
        program = direct("allpairs_allreduce")
        driver("cuStreamCreate", ctypes.byref(stream), 1)
        x, out = (InterfaceArray(np.full(96, RANK, np.float32), stream=stream.value) for _ in range(2))
        comm.run(program, x, out)
        comm.synchronize()
        driver("cuStreamBeginCapture_v2", stream, 0)
        comm.run(program, x, out)
        driver("cuStreamEndCapture", stream, ctypes.byref(graph))
        driver("cuGraphInstantiateWithFlags", ctypes.byref(made), graph, ctypes.c_ulonglong(0))
        call(comm, program, 100_000)
        for live in (False, RANK != 0):
            x.memory.fill(2)
            if live:
                comm.run(program, x, out)
            else:
                driver("cuGraphLaunch", made, stream)
            driver("cuStreamSynchronize", stream)
            print(error_of(comm.synchronize), np.unique(out.memory.content).tolist())


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


globals()[sys.argv[1]]()
