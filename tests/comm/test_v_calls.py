"""Calls whose blocks differ in length: any program serves them, and counts that do not fit are errors on every rank."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

import gc3
import ranks
from gc3 import algorithms

ROOT = Path(__file__).parents[2]


MORE = [pytest.param(n, i, marks=pytest.mark.nightly) for n, i in ((4, "2"), (6, "1"), (8, "1"))]


@pytest.mark.slow
@pytest.mark.parametrize(("n", "instances"), [(1, "1"), (2, "1,2"), (3, "1,3"), (4, "1"), *MORE])
def test_every_algorithm_serves_blocks_of_any_lengths(n: int, instances: str) -> None:
    ranks.run(ranks.program("v_calls"), n, {"INSTANCES": instances})


def test_a_row_serves_blocks_of_a_skew_and_the_choice_is_explained(tmp_path: Path) -> None:
    uneven = {"collective": "alltoall", "skew": [1.5, None], "program": {"algorithm": "bruck_alltoall"}}
    uneven["note"] = "uneven"
    even = {"collective": "alltoall", "program": {"algorithm": "direct_alltoall"}, "note": "even"}
    table = tmp_path / "table.json"
    table.write_text(json.dumps({"format": "gc3-selection-1", "rows": [uneven, even]}))
    ranks.run(ranks.program("rows_by_skew"), 2, arguments=[table])


@pytest.mark.parametrize("n", [2, 3])
def test_counts_that_do_not_fit(n: int) -> None:
    ranks.run(ranks.program("v_mistakes"), n)


def test_random_programs_serve_blocks_of_any_lengths() -> None:
    ranks.run(ranks.program("v_random"), 3)


def test_ranks_that_give_different_matrices() -> None:
    for text in ranks.run(ranks.program("different_calls"), 2, arguments=["blocks"]):
        assert "GC3-R010" in text, text
        assert "reducescatter of blocks of float64 (sum), counts" in text, text


def test_a_call_of_equal_blocks_and_one_of_equal_counts() -> None:
    """They are different calls, whatever the counts are: messages of a v-form have the bytes of its blocks."""
    for text in ranks.run(ranks.program("different_calls"), 2, arguments=["equal"]):
        assert "GC3-R010" in text, text
        assert "alltoall of blocks of float64" in text, text


def test_the_example_of_expert_routing(tmp_path: Path) -> None:
    ranks.run(ROOT / "examples" / "expert_routing.py", 3)
    made = json.loads((ROOT / "examples" / "moe.json").read_text())
    assert np.shape(made) == (16, 16)
    sys.path.insert(0, str(ROOT / "examples"))
    try:
        import expert_routing  # noqa: PLC0415

        assert expert_routing.counts(16) == made
    finally:
        sys.path.pop(0)


def test_a_program_that_adds_different_blocks_does_not_serve_them() -> None:
    source = gc3.SourceProgram("odd", "alltoall", ranks=2)
    with source:
        for r in range(2):
            for d in range(2):
                gc3.chunk(r, "in", d).copy(d, "out", r)
        waste = gc3.chunk(0, "in", 0).copy(0, "sc", 0)
        waste.reduce(gc3.chunk(0, "in", 1))
    program = gc3.compile(source)
    program.verify()
    with pytest.raises(gc3.UserError, match=r"(?s)GC3-V012.*rank 0 .* adds the block from rank 0 to rank") as caught:
        program.check_v_form()
    assert "differ" in str(caught.value)
    gc3.compile(algorithms.load("bruck_alltoall"), R=5).check_v_form()
    with pytest.raises(gc3.UserError, match="allreduce has no v-form"):
        gc3.compile(algorithms.load("ring_allreduce"), R=2).check_v_form()
