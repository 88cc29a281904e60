"""Collectives as data: nccl-tests' definitions and custom collectives."""

from __future__ import annotations

import pytest

from gc3 import UserError, collectives
from gc3.collectives import BUILTIN, custom

pytestmark = pytest.mark.python_only

RANKS = 4

# (S in blocks, elements per block of a call of `count`, bus bandwidth factor): GetCollByteCount and GetBw of
# nccl-tests.
NCCL_TESTS = {
    "allreduce": (1, 2 * (RANKS - 1) / RANKS),
    "allgather": (RANKS, (RANKS - 1) / RANKS),
    "reducescatter": (RANKS, (RANKS - 1) / RANKS),
    "alltoall": (RANKS, (RANKS - 1) / RANKS),
    "broadcast": (1, 1.0),
    "reduce": (1, 1.0),
    "gather": (RANKS, (RANKS - 1) / RANKS),
    "scatter": (RANKS, (RANKS - 1) / RANKS),
    "alltonext": (1, 1.0),
}


def test_every_builtin_is_defined() -> None:
    assert set(BUILTIN) == set(NCCL_TESTS)


@pytest.mark.parametrize("name", NCCL_TESTS)
@pytest.mark.parametrize("chunks", [1, 3])
def test_sizes_and_factors_are_those_of_nccl_tests(name: str, chunks: int) -> None:
    blocks, factor = NCCL_TESTS[name]
    model = BUILTIN[name].model(RANKS, chunks=chunks, root=1 if BUILTIN[name].rooted else 0)
    assert collectives.size_blocks(model) == blocks
    assert collectives.factor(model) == factor
    count = collectives.count_for(model, 1_000_003, 4)
    assert collectives.size_for(model, count, 4) <= 1_000_003 < collectives.size_for(model, count + 1, 4)


def test_one_rank_has_no_bus_traffic() -> None:
    assert collectives.factor(BUILTIN["allreduce"].model(1)) == 0


def test_unknown_collective_names_the_known_ones() -> None:
    with pytest.raises(UserError, match=r"GC3-M001.*allreduces.*allgather"):
        collectives.get("allreduces")


def test_builtin_needs_ranks() -> None:
    with pytest.raises(UserError, match="number of ranks"):
        BUILTIN["allreduce"].model()


def test_custom_terms_and_reduction() -> None:
    total = custom("total", inputs=[1, 1, 1], outputs=[1, 0, 0], expect={(0, 0): [(0, 0), (1, 0), (2, 0)]})
    model = total.model()
    assert model.expected_terms(0, 0) == [(0, 0), (1, 0), (2, 0)]
    assert total.reduces
    assert collectives.reduces(model)
    assert collectives.factor(model) == 1
    assert not collectives.rooted(model)


def test_custom_leaves_places_open() -> None:
    model = custom("some", inputs=[2], outputs=[2], expect={(0, 1): (0, 0)}).model()
    assert model.expected_terms(0, 0) == []
    assert model.expected_terms(0, 1) == [(0, 0)]


def test_custom_alias_both_ways() -> None:
    gather = custom(
        "gather",
        inputs=[1, 1],
        outputs=[2, 2],
        expect=lambda _, i: (i, 0),
        alias=lambda rank: ("output", rank),
    ).model(in_place=True)
    assert gather.canonical(1, 0, 0) == (1, 1)
    scatter = custom(
        "scatter",
        inputs=[2, 2],
        outputs=[1, 1],
        expect=lambda r, _: (r, 0),
        alias=[("input", 0), ("input", 1)],
    ).model(in_place=True)
    assert scatter.canonical(1, 1, 0) == (0, 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"inputs": [1], "outputs": [1, 1], "expect": {}}, "inputs names 1 ranks and outputs 2"),
        ({"inputs": [1, -1], "outputs": [1, 1], "expect": {}}, "gives rank 1 -1 chunks"),
        ({"inputs": [1], "outputs": [1], "expect": {(0, 1): (0, 0)}}, "output chunk 1 of rank 0"),
        ({"inputs": [1], "outputs": [1], "expect": {(0, 0): (1, 0)}}, "input chunk 0 of rank 1"),
        ({"inputs": [1], "outputs": [1], "expect": {(0, 0): (0, 7)}}, "input chunk 7 of rank 0"),
        ({"inputs": [1], "outputs": [1], "expect": {(0, 0): ["x"]}}, "not a .rank, index."),
        ({"inputs": [1], "outputs": [2], "expect": {}, "alias": [("output", 2)]}, "does not fit"),
        ({"inputs": [1], "outputs": [1], "expect": {}, "alias": [("scratch", 0)]}, "alias of rank 0"),
        ({"inputs": [1], "outputs": [1], "expect": {}, "alias": []}, "alias names 0 ranks of 1"),
        ({"inputs": [1], "outputs": [1], "expect": lambda _: None}, "of rank and index: too many positional"),
        ({"inputs": [1], "outputs": [1], "check": lambda: True}, "check is a function of made: too many positional"),
        ({"inputs": [1], "outputs": [1], "expect": {}, "alias": lambda a, b: a + b}, "of rank: missing a required"),
    ],
)
def test_custom_mistakes_are_reported(
    arguments: dict[str, object], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "__package__", None)  # as in a script
    with pytest.raises(UserError, match=message) as caught:
        custom("mine", **arguments)  # type: ignore[arg-type]
    assert (caught.value.code, caught.value.file) == ("GC3-M001", __file__)


def test_custom_has_its_own_ranks_and_chunks() -> None:
    mine = custom("mine", inputs=[1], outputs=[1], expect={})
    with pytest.raises(UserError, match="for 1 ranks, not 2"):
        mine.model(2)
    with pytest.raises(UserError, match="its chunks are given"):
        mine.model(chunks=2)
