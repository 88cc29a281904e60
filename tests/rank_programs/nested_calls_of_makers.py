"""Calls by a signal handler while the program of a call is compiled in the same thread, and while one is for itself."""

# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
import signal
from collections.abc import Callable
from typing import Any

import numpy as np
from here import error_of

import gc3
from gc3.algorithms import load
from gc3.comm.spec import Spec

x = np.ones(4)
compiled = Spec.compile


def compile_interrupted(self: Spec, *given: Any, **how: Any) -> gc3.Program:
    """Python runs the handler before it goes on."""
    signal.raise_signal(signal.SIGUSR1)
    return compiled(self, *given, **how)


with gc3.init() as comm:
    ring = gc3.compile(load("ring_allreduce"), R=2)
    calls: list[Callable[[], object]] = [
        lambda: comm.all_reduce(x),
        lambda: comm.all_reduce_async(x),
        lambda: comm.all_to_all_v(x, [2, 2], [2, 2]),
        lambda: comm.run(ring, x),
        lambda: comm.explain("allreduce", 8),
        lambda: comm.load(ring),
        lambda: comm.split(0),
        lambda: comm.group([0, 1]),
        comm.barrier,
        comm.close,
    ]
    said: list[str] = []
    signal.signal(signal.SIGUSR1, lambda *_: said.extend(error_of(call) for call in calls))
    Spec.compile = compile_interrupted
    assert comm.all_reduce(x).tolist() == [2.0] * 4
    assert len(said) == len(calls)
    assert all(text.startswith("GC3-R028 ") for text in said), said
    assert comm.all_gather_v(x[:1], [1, 1]).tolist() == [1.0] * 2
    assert len(said) == 2 * len(calls)
    assert all(text.startswith("GC3-R028 ") for text in said), said
    Spec.compile = compiled

    # A program for no call: the handler may make one, for which another program is compiled.
    found: list[list[float]] = []
    signal.signal(signal.SIGUSR1, lambda *_: found.append(comm.all_to_all(x).tolist()))

    @gc3.algorithm("allreduce", in_place=True)
    def interrupted(R: int) -> None:
        signal.raise_signal(signal.SIGUSR1)
        for rank in range(1, R):
            gc3.chunk(0, "in", 0).reduce(gc3.chunk(rank, "in", 0))
        for rank in range(1, R):
            gc3.chunk(0, "in", 0).copy(rank, "in", 0)

    program = gc3.compile(interrupted, R=2)
    assert found == [[1.0] * 4]
    total = comm.run(program, x.copy())
    assert total is not None
    assert total.tolist() == [2.0] * 4
