"""A call whose program rank 0 has no memory for: one error there, which says what was asked for, and all are told."""

# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
import resource
from contextlib import suppress
from typing import Any

import numpy as np
from here import RANK, error_of

import gc3
from gc3.comm.spec import Spec


@gc3.algorithm("allreduce", chunks=lambda R, blocks: blocks, in_place=True)
def long(R: int, blocks: int = 40_000) -> None:
    for block in range(blocks):
        for rank in range(1, R):
            gc3.chunk(0, "in", block).reduce(gc3.chunk(rank, "in", block))
        for rank in range(1, R):
            gc3.chunk(0, "in", block).copy(rank, "in", block)


program = gc3.compile(long, R=2)
ballast: list[bytearray] = []


def made(_: Spec, *__: Any, **___: Any) -> gc3.Program:
    """From here on there is room for what is small."""
    if RANK == 0:
        with open("/proc/self/statm") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 20), resource.RLIM_INFINITY))
        with suppress(MemoryError):
            while True:
                ballast.append(bytearray(1 << 14))
        del ballast[-16:]
    return program


with gc3.init() as comm:
    comm.barrier()
    Spec.compile = made  # pyright: ignore[reportAttributeAccessIssue]
    x = np.ones(40_000)
    told = error_of(lambda: comm.all_reduce(x, out=x))
    assert "all_reduce of 40000 float64 per block: an allocation has failed" in told, told
    assert told.startswith("GC3-R006 " if RANK == 0 else "GC3-R010 "), told
