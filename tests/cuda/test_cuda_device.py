"""On a device only, because there are many cases: the whole library, as test_algorithms.py has it on the CPU engine."""

from __future__ import annotations

import itertools

import pytest

import gc3
from gc3 import cuda, datatypes
from gc3.algorithms import catalogue
from gc3.datatypes import FORMATS
from gc3.errors import UserError
from gc3.runtime.checking import Case

BY_NAME = catalogue()
SMALL = (0, 1, 1009)  # of every type
LARGE = (65537, 262144)  # of one type in turn: most of their time is spent in the comparison on the host

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("name", BY_NAME)
@pytest.mark.parametrize("protocol", FORMATS)
def test_every_type_and_odd_sizes(name: str, protocol: str) -> None:
    names = [p.name for p in BY_NAME[name].parameters]
    sizes = (
        [{"R": r} for r in (2, 3, 4, 8)] if "R" in names else [{"N": n, "G": g} for n, g in ((1, 2), (2, 2), (2, 4))]
    )
    ops = itertools.cycle(datatypes.OPS)
    turn = list(BY_NAME).index(name) + FORMATS.index(protocol)
    for size, in_place in itertools.product(sizes, (False, True)):
        program = gc3.compile(BY_NAME[name], protocol=protocol, in_place=in_place, **size)
        engine = cuda.Engine(program)
        for count, dtype in _cases(turn):
            case = Case(program.collective, count, dtype, next(op for op in ops if datatypes.takes(op, dtype)))
            try:
                inputs = case.inputs()
            except UserError as problem:
                assert "GC3-L017" in str(problem)  # noqa: PT017  the type cannot hold exact results of so many ranks
                continue
            outputs = engine.run(inputs, op=case.op, outputs=case.poisoned_outputs(), count=count, dtype=dtype)
            assert case.compare(inputs, outputs).ok, (size, in_place, dtype, case.op, count)
        turn += 2


def _cases(turn: int) -> list[tuple[int, str]]:
    types = list(datatypes.DTYPES)
    return [
        *itertools.product(SMALL, types),
        *((count, types[(turn + i) % len(types)]) for i, count in enumerate(LARGE)),
    ]
