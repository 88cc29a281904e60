"""Programs that compute on ranks of several hosts: computing_on_hosts.py FOLDER.

All compute what NumPy does. Then rank 0 passes a message on while it computes: its operation ends only when rank 1 has
got what rank 2 has sent after that operation had begun.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
from here import RANK, SIZE

import gc3
from computing_programs import ALGORITHMS, Case
from gc3 import chunk, collectives
from gc3.datatypes import Array

FOLDER = Path(sys.argv[1])
LONGEST = 60  # seconds

hold, make, see = gc3.op("hold"), gc3.op("make"), gc3.op("see")


def relay(R: int) -> collectives.Collective:
    """Rank 1 gets what rank 2 has made; rank 0 has something else to compute."""
    return collectives.custom(
        "relay",
        ranks=R,
        inputs={"x": lambda rank: int(rank in (0, 2))},
        outputs={"y": lambda rank: int(rank in (0, 1))},
        expect=lambda v, rank, _, __: hold(v(0, "x", 0)) if rank == 0 else see(make(v(2, "x", 0))),
    )


@gc3.algorithm(relay, scratch=["made", "passed", "arrived"])
def by_rank_0(R: int) -> None:
    """From rank 2 over rank 0 to rank 1."""
    made = make(chunk(2, "x", 0), out=(2, "made", 0))
    see(made.copy(0, "passed", 0).copy(1, "arrived", 0), out=(1, "y", 0))
    hold(chunk(0, "x", 0), out=(0, "y", 0))


def await_file(name: str) -> None:
    """Waits for another rank."""
    until = time.monotonic() + LONGEST
    while not (FOLDER / name).exists():
        if time.monotonic() > until:
            raise TimeoutError(f"nothing has moved: there is no {name}")
        time.sleep(0.001)


def do_hold(x: Array, out: Array) -> None:
    """Of rank 0, which asks meanwhile what carries the messages that move."""
    for _ in range(20):
        assert comm.explain("allreduce", 4).source
        assert comm.transport
    (FOLDER / "held").touch()
    for _ in range(20):
        assert comm.explain("allreduce", 4).source
        assert comm.transport
    await_file("seen")
    out[...] = x


def do_make(x: Array, out: Array) -> None:
    """Of rank 2."""
    await_file("held")
    out[...] = x


def do_see(x: Array, out: Array) -> None:
    """Of rank 1."""
    (FOLDER / "seen").touch()
    out[...] = x


with gc3.init() as comm:
    for algorithm in ALGORITHMS:
        for rows in (3, 0, 20000 // SIZE):
            case = Case(algorithm, SIZE, rows)
            mine = {name: arrays[RANK] for name, arrays in case.inputs.items()}
            case.check_rank(case.program.bind(case.functions).run_rank(comm, mine, shapes=case.shapes), RANK)

    bound = gc3.compile(by_rank_0, R=SIZE).bind({"hold": do_hold, "make": do_make, "see": do_see})
    x = np.arange(1 << 20, dtype=np.float32) + RANK
    shapes = {"x": x.shape, "made": x.shape, "y": x.shape}
    got = bound.run_rank(comm, {"x": x if RANK in (0, 2) else x[:0]}, shapes=shapes)["y"]
    if RANK in (0, 1):
        assert np.array_equal(got, x + (1 if RANK == 1 else 0))
    print("all right")
