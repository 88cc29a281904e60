"""What functions of compute operations may raise, write and return."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import computing_programs
import gc3
from computing_programs import ALGORITHMS, Case
from gc3.datatypes import Array


def test_a_function_that_raises_ends_the_run_with_one_error_and_the_engine_goes_on() -> None:
    case = Case(computing_programs.gemm_ring, 3)

    def wrong(a: Array, b: Array, out: Array) -> None:
        raise ValueError("no such shape")

    for workers in (1, 3):
        for _ in range(3):
            with pytest.raises(gc3.UserError) as caught:
                case.program.bind({"matmul": wrong}).run(case.inputs, shapes=case.shapes, workers=workers)
            said = str(caught.value)
            assert "GC3-R029" in said
            assert "matmul of rank " in said
            assert "(apply, computing_programs.py:" in said
            assert "has raised ValueError: no such shape" in said
            assert "raised here (" in said
            case.check(case.program.bind(case.functions).run(case.inputs, shapes=case.shapes, workers=workers))


def test_texts_of_exceptions_may_hold_anything() -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    for problem, said in (
        (OSError("bad\udcff"), r"OSError: bad\\udcff"),
        (MuteError(), "MuteError: "),
    ):

        def raises(a: Array, b: Array, out: Array, problem: Exception = problem) -> None:
            raise problem

        case = Case(computing_programs.gemm_ring, 2)
        with pytest.raises(gc3.UserError, match=f"GC3-R029.*{said}"):
            case.program.bind({"matmul": raises}).run(case.inputs, shapes=case.shapes)


def test_what_ends_programs_is_no_error_of_a_function() -> None:
    case = Case(computing_programs.gemm_ring, 2)

    def stops(a: Array, b: Array, out: Array) -> None:
        raise KeyboardInterrupt

    for workers in (1, 2):
        with pytest.raises(KeyboardInterrupt):
            case.program.bind({"matmul": stops}).run(case.inputs, shapes=case.shapes, workers=workers)
        case.check(case.program.bind(case.functions).run(case.inputs, shapes=case.shapes, workers=workers))


def test_what_a_function_may_not_do() -> None:
    case = Case(computing_programs.gemm_ring, 2)

    def returns(a: Array, b: Array, out: Array) -> Array:
        return a @ b

    def writes(a: Array, b: Array, out: Array) -> None:
        a[...] = 0

    def shape(a: Array, b: Array, out: Array) -> None:
        np.matmul(b, a, out=out)

    for function, why in (
        (returns, "returned ndarray"),
        (writes, "read-only"),
        (shape, "matmul"),
        (lambda a: None, "out"),
    ):
        with pytest.raises(gc3.UserError, match=f"GC3-R029.*{why}"):
            case.program.bind({"matmul": function}).run(case.inputs, shapes=case.shapes)


def test_functions_are_checked_on_guarded_copies() -> None:
    case = Case(computing_programs.gemm_ring, 2)
    calls = iter(range(1000))

    def operand(a: Array, b: Array, out: Array) -> None:
        np.matmul(a, b, out=out)
        b[0, 0] += 1

    def beside(a: Array, b: Array, out: Array) -> None:
        np.matmul(a, b, out=out)
        np.lib.stride_tricks.as_strided(out, (out.shape[0] + 1, out.shape[1]), out.strides)[-1, 0] = 7

    def partly(a: Array, b: Array, out: Array) -> None:
        out[:-1] = (a @ b)[:-1]

    def adds(a: Array, b: Array, out: Array) -> None:
        out += a @ b

    def draws(a: Array, b: Array, out: Array) -> None:
        np.matmul(a, b, out=out)
        out += next(calls)

    def returns(a: Array, b: Array, out: Array) -> Array:
        return a @ b

    for function, why in (
        (operand, "matmul of rank . .*it writes operand 1, which it may only read"),
        (beside, "it writes beside result 0"),
        (partly, "it leaves a part of result 0 as it was"),
        (adds, "it makes other values of the same operands"),
        (draws, "it makes other values of the same operands"),
        (returns, "returned ndarray"),
    ):
        with pytest.raises(gc3.UserError, match=f"GC3-R029.*{why}"):
            case.program.bind({"matmul": function}, check=True).run(case.inputs, shapes=case.shapes)
    for algorithm in ALGORITHMS:
        case = Case(algorithm, 2)
        case.check(case.program.bind(case.functions, check=True).run(case.inputs, shapes=case.shapes))


@pytest.mark.python_only
def test_a_slow_function_is_no_time_out() -> None:
    """It computes while nothing else moves for longer than the time-out, more than a busy machine takes away."""
    case = Case(computing_programs.gemm_ring, 2)
    slow = threading.Event()

    def late(a: Array, b: Array, out: Array) -> None:
        if not slow.is_set():
            slow.wait(3.3)
            slow.set()
        np.matmul(a, b, out=out)

    case.check(case.program.bind({"matmul": late}).run(case.inputs, shapes=case.shapes, timeout=3.0))
