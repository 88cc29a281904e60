"""Programs of so many steps that each rank makes its own alone: of the caller, loaded, and of a table."""

import sys
from pathlib import Path

import numpy as np
from here import RANK, SIZE

import gc3
from gc3.runtime.classes import ClassProgram

FEW = 1 << 18  # steps of all ranks, up to which each rank makes all of them
FOLDER = Path(sys.argv[1])


def found(name: str) -> gc3.Program:
    program = gc3.Program.load(FOLDER / name)
    assert isinstance(program, ClassProgram)
    assert program.info()["instructions"] > FEW
    return program


with gc3.init(table=FOLDER / "table.json") as comm:
    sums = found("sums.gc3")
    x = np.arange(sums.collective.chunks) % 1000 + RANK
    wanted = SIZE * (x - RANK) + sum(range(SIZE))
    assert np.array_equal(comm.run(sums, x, x), wanted)
    gathers = found("gathers.gc3")
    x = np.arange(11007) * SIZE + RANK
    wanted = np.concatenate([np.arange(11007) * SIZE + rank for rank in range(SIZE)])
    assert comm.explain("allgather", 11007, "int64").program.startswith("program ")
    assert np.array_equal(np.ravel(comm.all_gather(x)), wanted)  # by the file that the table names

    comm.load(gathers)
    assert "loaded program many_sends" in comm.explain("allgather", 11007, "int64").source
    parts = comm.all_gather_v(np.full(RANK + 1, RANK))
    assert np.ravel(parts).tolist() == [rank for rank in range(SIZE) for _ in range(rank + 1)]
