"""Calls with the table of the command line, with loaded programs, and with a custom collective."""

import sys
from typing import Any

import numpy as np
from here import RANK

import gc3
from gc3.algorithms import load

with gc3.init(table=sys.argv[1]) as comm:
    told = comm.explain("allreduce", 10)
    assert told.source == "mine.json row 1"
    assert told.note == "mine"
    assert "ring_allreduce" in told.program
    told = comm.explain("allreduce", 1000)
    assert ("mine.json row 1", "for less than 100 B") in told.passed_over
    assert "default.json" in told.source
    assert comm.all_reduce(2) == 6
    mine = comm.load(gc3.compile(load("ring_allreduce"), R=3, in_place=False), min_size=1000)
    told = comm.explain("allreduce", 1000)
    assert told.source == "the loaded program ring_allreduce", told
    told = comm.explain("allreduce", 1000, in_place=True)
    assert ("the loaded program ring_allreduce", "for calls out of place") in told.passed_over
    assert str(told).count("\n") >= 2
    assert comm.all_reduce(np.ones(1000)).sum() == 3000
    swap = gc3.collectives.custom("rotate", inputs=[1] * 3, outputs=[1] * 3, expect=lambda rank, _: ((rank + 1) % 3, 0))

    @gc3.algorithm(lambda: swap)
    def rotate() -> None:
        for rank in range(3):
            gc3.chunk((rank + 1) % 3, "in", 0).copy(rank, "out", 0)

    assert comm.run(gc3.compile(rotate), np.full(4, RANK)).tolist() == [(RANK + 1) % 3] * 4
    one_sided: Any = gc3.compile(load("ring_allreduce"), R=3, memory="direct")
    for refused, why in ((gc3.compile(load("ring_allreduce"), R=4), "4 ranks"), (one_sided, "comm.run(program")):
        try:
            comm.load(refused)
        except gc3.UserError as problem:
            assert why in str(problem), problem
        else:
            raise AssertionError("it does not fit")
