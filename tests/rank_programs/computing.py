"""Programs that compute on ranks that are processes, and what ends them. Prints the text of each error."""

import gc
import weakref
from typing import Any

import numpy as np
from here import RANK, SIZE, error_of

import gc3
from computing_programs import ALGORITHMS, Case, experts, gemm_ring
from gc3.datatypes import Array

with gc3.init() as comm:
    for algorithm in ALGORITHMS:
        for rows in (3, 0, 3, 4096 if algorithm is gemm_ring else 5):
            case = Case(algorithm, SIZE, rows)
            bound = case.program.bind(case.functions)
            mine = {name: arrays[RANK] for name, arrays in case.inputs.items()}
            got = bound.run_rank(comm, mine, shapes=case.shapes)
            case.check_rank(got, RANK)

    # A program is made ready once for arrays of the same shapes, and looks at others again.
    case = Case(gemm_ring, SIZE)
    bound = case.program.bind(case.functions)
    for rows in (3, 3, 5, 3):
        case = Case(gemm_ring, SIZE, rows)
        mine = {name: arrays[RANK] for name, arrays in case.inputs.items()}
        case.check_rank(bound.run_rank(comm, mine, shapes=case.shapes), RANK)
        transposed = {"x": np.asfortranarray(mine["x"]), "w": mine["w"].tolist()}
        case.check_rank(bound.run_rank(comm, transposed, shapes=case.shapes), RANK)
        as_lists: dict[str, Any] = {name: list(shape) for name, shape in case.shapes.items()}
        case.check_rank(bound.run_rank(comm, mine, shapes=as_lists), RANK)
    assert len(bound._known[comm]) == 2, "of rows 3 and 5"

    # Its functions get the arrays of the call before, unless they have kept or changed them.
    kept: list[Array] = []

    def careless(a: Array, b: Array, out: Array) -> None:
        case.functions["matmul"](a, b, out=out)
        kept.append(a)
        out.setflags(write=False)

    bound = case.program.bind({"matmul": careless})
    mine = {name: arrays[RANK] for name, arrays in case.inputs.items()}
    for _ in range(3):
        case.check_rank(bound.run_rank(comm, mine, shapes=case.shapes), RANK)
    assert len({id(array) for array in kept}) == len(kept)
    assert set(bound.shapes) >= {"x", "w", "y"}

    # A bound program keeps no communicator open.
    mine = {name: arrays[RANK] for name, arrays in case.inputs.items()}
    group = comm.split(0)
    assert group is not None
    bound.run_rank(group, mine, shapes=case.shapes)
    passing = weakref.ref(group)
    del group
    gc.collect()
    assert passing() is None
    group = comm.split(0)
    assert group is not None
    print(error_of(lambda: comm.run(case.program, mine["x"].ravel()[: 7 * SIZE])))
    print(error_of(lambda: comm.load(case.program)))
    print(error_of(lambda: case.program.bind(case.functions).run_rank(comm, {"x": mine["x"]}, shapes=case.shapes)))

    def wrong(a: Array, b: Array, out: Array) -> None:
        if RANK == 1:
            raise ValueError("no such shape")
        case.functions["matmul"](a, b, out=out)

    print(error_of(lambda: case.program.bind({"matmul": wrong}).run_rank(group, mine, shapes=case.shapes)))
    # Another group goes on.
    case = Case(experts, SIZE)
    mine = {name: arrays[RANK] for name, arrays in case.inputs.items()}
    case.check_rank(case.program.bind(case.functions).run_rank(comm, mine, shapes=case.shapes), RANK)
