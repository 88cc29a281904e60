"""Calls of a custom collective that the table of the command line serves; with a mode, rank 1 defines it otherwise.

own_collective.py TABLE [changed|unknown|stricter]    how rank 1 differs
"""

import sys
from typing import Any

import numpy as np
from here import RANK, SIZE, error_of

import gc3
from gc3 import collectives

mode = sys.argv[2] if len(sys.argv) > 2 and RANK == 1 else ""


def wanted(rank: int, index: int) -> object:
    if mode == "changed":
        return (1 - rank, 1 - index)
    # The same data moves, so that only the definitions differ.
    return None if mode == "stricter" and index == 1 else (1 - rank, index)


name = "elsewhere" if mode == "unknown" else "mirror"
mirror = collectives.custom(name, inputs=[2, 2], outputs=[2, 2], expect=wanted, alias=[("input", 0)] * 2)  # pyright: ignore[reportArgumentType]


def result(*arrays: Any) -> Any:
    return comm.run(mirror, *arrays)


with gc3.init(table=sys.argv[1]) as comm:
    x = np.arange(4, dtype=np.float32) + 10 * RANK
    if len(sys.argv) > 2:
        print(error_of(lambda: comm.run(mirror, x)))
        sys.exit()
    told = comm.explain(mirror, 2)
    assert told.source == "t.json row 1", told
    assert "swap.py:swap" in told.program
    for _ in range(2):
        assert result(x).tolist() == (np.arange(4) + 10 * (1 - RANK)).tolist()
    out = np.empty(4, np.float32)
    assert result(x, out) is out
    assert out[0] == 10 * (1 - RANK)
    assert result(x, x)[0] == 10 * (1 - RANK)  # in place: so all ranks have said by out=
    many = np.ones(1 << 20, np.float32)
    assert "no row serves mirror of 4 MiB on 2 ranks" in error_of(lambda: comm.run(mirror, many))

with gc3.init(table=sys.argv[1]) as comm:
    program = gc3.compile(gc3.algorithms.load(sys.argv[1].replace("t.json", "swap.py:swap")), R=SIZE)
    comm.load(program, min_size=1 << 20)
    assert result(many).sum() == 1 << 20
    assert comm.explain(mirror, 1 << 19).source == "the loaded program swap"
