"""Several arrays in one call, and functions that are called when a call has ended."""

import pytest

import ranks


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_many_arrays_at_once(n: int) -> None:
    ranks.run(ranks.program("coalesced"), n, {"EVERY": "0" if n == 4 else "1"})


def test_ranks_that_make_different_calls_at_once() -> None:
    code = """
with gc3.init(timeout=20) as comm:
    x = [np.zeros(5), np.zeros(7)]
    try:
        comm.all_reduce_many(x if r == 0 else x[::-1])
    except gc3.CommError as problem:
        assert "GC3-R010" in str(problem), problem
        assert "allreduce of many arrays of float64 (sum), counts" in str(problem), problem
    else:
        raise AssertionError
"""
    ranks.run(code, 2)
