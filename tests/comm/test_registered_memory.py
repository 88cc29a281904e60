"""One-sided programs between processes."""

from __future__ import annotations

import pytest

import ranks

PART = 9  # of the library, so many parts of which the usual run tests one for each number of ranks


@pytest.mark.parametrize("size", [2, 3, 4])
def test_library_programs_compute_what_numpy_does(size: int) -> None:
    ranks.run(ranks.program("one_sided"), size, arguments=[PART, size])


@pytest.mark.nightly
@pytest.mark.parametrize("size", [2, 3, 4])
def test_all_library_programs_compute_what_numpy_does(size: int) -> None:
    ranks.run(ranks.program("one_sided"), size, arguments=[1, 0])


def test_they_run_among_other_calls() -> None:
    for text in ranks.run(ranks.program("one_sided_calls"), 3):
        assert "GC3-R010 the ranks make different calls" in text
        assert "allreduce of 5 float32" in text
        assert "allreduce of 6 float32" in text
