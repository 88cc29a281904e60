"""Formulas of parameters, and the stated cost of an algorithm."""

from __future__ import annotations

import pytest

import gc3
from gc3.algorithms import catalogue
from gc3.lang import Cost, Traffic
from gc3.lang.formula import Formula

pytestmark = pytest.mark.python_only


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2*(R-1)", 8),
        ("R // 2 + R % 3", 4),
        ("R - 1 if R == pow2(R) else R", 5),
        ("(R > 4 and N == 2) + (R < 4 or N != 2)", 1),
        ("max(ceil_log2(R), N, 1) + min(R, N)", 5),
        ("floor_log2(R) + ones(R) + subtree(R)", 9),
    ],
)
def test_formulas_give_numbers(text: str, value: int) -> None:
    assert Formula(text)(R=5, N=2) == value
    assert str(Formula(text)) == text
    assert Formula(text).names <= {"R", "N"}


@pytest.mark.parametrize(
    "text",
    ["", "R +", "R / 2", "R ** R", "R.real", "R[0]", "'R'", "1 < R < 3", "print(R)", "pow2(n=R)", "lambda: R", "-R"],
)
def test_anything_else_is_not_a_formula(text: str) -> None:
    with pytest.raises(ValueError, match="formula"):
        Formula(text)


def test_a_cost_refers_to_parameters_of_its_algorithm() -> None:
    def halves(R: int) -> None:
        """Does nothing."""

    with pytest.raises(gc3.UserError, match="no parameter 'N', which its cost refers to") as caught:
        gc3.algorithm("alltonext", cost=Cost(steps="N", sent="0", of="1"))(halves)
    assert caught.value.code == "GC3-L017"


def test_every_record_is_complete() -> None:
    for algorithm in catalogue().values():
        assert algorithm.summary
        assert algorithm.good_for
        assert algorithm.section
        assert algorithm.cost is not None
    ring = catalogue()["ring_allreduce"]
    assert ring.cost is not None
    assert ring.cost.at(**ring.complete({"R": 4})) == Traffic(steps=6, sent=6, of=4)


def test_an_algorithm_may_be_right_in_both_modes() -> None:
    """No copy adapts it: only the root's own block moves out of place, and in place no block at all."""
    copies: list[int] = []
    for in_place in (False, True):
        program = gc3.compile(catalogue()["flat_scatter"], R=3, in_place=in_place)
        steps = [s for tb in program.core.as_dict()["ranks"][0]["threadblocks"] for s in tb["steps"]]
        copies.append(sum(s["opcode"] == "copy" for s in steps))
    assert copies == [1, 0]


@pytest.mark.parametrize("parallel", [1, 2])
def test_hierarchical_allreduce_has_the_schedule_of_002_section_5_1(parallel: int) -> None:
    """Reducing inside nodes on channel 0, across nodes on channel 1, gathering inside nodes on channel 2."""
    program = gc3.compile(catalogue()["hierarchical_allreduce"], N=2, G=3, parallel=parallel)
    inside: dict[int, set[str]] = {}
    across: set[int] = set()
    for rank, listing in enumerate(program.core.as_dict()["ranks"]):
        for tb in listing["threadblocks"]:
            if tb["send_peer"] is not None and tb["send_peer"] // 3 != rank // 3:
                across.add(tb["channel"])
            else:
                inside.setdefault(tb["channel"], set()).update(s["opcode"] for s in tb["steps"])
    assert across == {1}
    assert len(inside) == 2 * parallel
    assert any("reduce" in opcode for opcode in inside[0])
    assert not any("reduce" in opcode for opcode in inside[2])
