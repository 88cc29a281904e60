"""Several arrays in one call, and functions that are called when a call has ended."""

import pytest

import ranks


@pytest.mark.parametrize(
    "n", [1, pytest.param(2, marks=pytest.mark.nightly), pytest.param(3, marks=pytest.mark.python_only), 4]
)
def test_many_arrays_at_once(n: int) -> None:
    ranks.run(ranks.program("coalesced"), n, {"EVERY": "0" if n == 4 else "1"})


def test_a_program_without_v_form_serves_many_arrays_by_copies() -> None:
    ranks.run(ranks.program("coalesced_flat"), 2)


@ranks.limits_memory
def test_a_rank_without_memory_for_the_copies_tells_the_others() -> None:
    ranks.run(ranks.program("coalesced_flat"), 2, arguments=["limit"])


def test_ranks_that_make_different_calls_at_once() -> None:
    for text in ranks.run(ranks.program("different_calls"), 2, arguments=["order"]):
        assert "GC3-R010" in text, text
        assert "allreduce of many arrays of float64 (sum), counts" in text, text
