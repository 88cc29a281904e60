"""Calls of processes write only to the caller's outputs."""

from __future__ import annotations

from pathlib import Path

import pytest

import ranks


@pytest.mark.parametrize("n", [1, 2, 3, pytest.param(5, marks=pytest.mark.python_only)])
def test_rooted_collectives_into_memory_of_the_callers(n: int) -> None:
    ranks.run(ranks.program("rooted_into_out"), n)


def test_programs_write_only_to_outputs(tmp_path: Path) -> None:
    """Random programs in place, on inputs in read-only memory maps; some ranks have no output."""
    ranks.run(ranks.program("in_place_programs"), 3, arguments=[tmp_path])


def test_a_rank_that_only_forwards_data_gives_the_count() -> None:
    ranks.run(ranks.program("relay"), 3)
