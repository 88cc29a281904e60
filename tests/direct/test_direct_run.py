"""One-sided programs on threads: results equal to NumPy's."""

from __future__ import annotations

import copy
import itertools
import pickle

import numpy as np
import pytest

import gc3
from gc3 import algorithms
from gc3.runtime.checking import Case

SIZES = {"N": {"N": 2, "G": 2}, "R": {"R": 3}}


@pytest.mark.slow
@pytest.mark.parametrize("name", algorithms.catalogue())
def test_library_programs_compute_what_numpy_does(name: str) -> None:
    algorithm = algorithms.load(name)
    given = {p.name for p in algorithm.parameters}
    size = {} if name == "ndv2_allreduce" else next((SIZES[p] for p in SIZES if p in given), {})
    for instances, in_place in itertools.product((1, 2), (False, True)):
        program = gc3.compile(algorithm, memory="direct", instances=instances, in_place=in_place, **size)
        even = program.collective.chunks * 5
        for count, dtype, op in ((even, "int32", "sum"), (1009, "float64", "max"), (1, "uint8", "min")):
            case = Case(program.collective, count, dtype, op)
            inputs, outputs = case.inputs(), case.poisoned_outputs()
            program.run(inputs, outputs=outputs, count=count, dtype=dtype, op=op, workers=2)
            assert case.compare(inputs, outputs).ok, (count, dtype, op, instances, in_place)


def test_programs_are_sent_and_copied() -> None:
    """As those of messages: with pickle, as to the ranks of `gc3.spawn`."""
    program = gc3.compile(algorithms.load("allpairs_allreduce"), R=3, memory="direct")
    for other in pickle.loads(pickle.dumps(program)), copy.deepcopy(program):  # noqa: S301 - our own
        assert other == program
        assert (other.name, other.messages) == (program.name, program.messages)
        for result in other.run([np.ones(6)] * 3):
            assert (np.asarray(result) == 3).all()


def test_a_program_is_timed_and_run_again() -> None:
    program = gc3.compile(algorithms.load("ring_allreduce"), R=2, memory="direct")
    inputs = [np.arange(10, dtype=np.int64), np.ones(10, np.int64)]
    assert len(program.time(inputs, iterations=3)) == 3
    for result in program.run(inputs):
        assert result is not None
        assert result.tolist() == list(range(1, 11))


def test_averages_and_factors() -> None:
    program = gc3.compile(algorithms.load("allpairs_allreduce"), R=3, memory="direct")
    inputs = [np.full(7, r + 1, np.float64) for r in range(3)]
    for result in program.run(inputs, op="avg"):
        assert result is not None
        assert result.tolist() == [2.0] * 7
    for result in program.run(inputs, op=gc3.PreMulSum([1, 10, 100])):
        assert result is not None
        assert result.tolist() == [321.0] * 7
    assert [x[0] for x in inputs] == [1, 2, 3]


def test_what_it_refuses() -> None:
    program = gc3.compile(algorithms.load("ring_allreduce"), R=2, memory="direct")
    inputs = [np.ones(4, np.float32)] * 2
    with pytest.raises(gc3.UserError, match="bxor of float32"):
        program.run(inputs, op="bxor")
    with pytest.raises(gc3.UserError, match="timeout of -1 s"):
        program.run(inputs, timeout=-1)
