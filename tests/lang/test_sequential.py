"""Postconditions as sequential programs: the same terms as by hand, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

import gc3
from computing_programs import add_norm, expert, gemm_rs, matmul, moe, norm, statistics, stats
from gc3 import algorithms, collectives
from gc3.computing import Calls


def gemm_reference(call: Calls) -> None:
    call(matmul, "x", "w", out="part")
    call("reducescatter", "part", "y")


def moe_reference(call: Calls) -> None:
    call("alltoall", "tokens", "arrived")
    call(expert, "arrived", "weights", out="made")
    call(algorithms.load("direct_alltoall"), "made", "answers")


def norm_reference(call: Calls) -> None:
    call("allreduce", "x", "total")
    call("add", "total", "residual", out="sum")
    call(norm, "sum", "gain", out="y")


def statistics_reference(call: Calls) -> None:
    call(stats, "x", out=["first", "second"])
    call("allreduce", "first", "first")
    call("allreduce", "second", "second")
    call(norm, "x", "first", "second", out="y")


SIZES: dict[Callable[..., Any], tuple[Callable[[Calls], None], Callable[[int], dict[str, int]], dict[str, Any]]] = {
    gemm_rs: (gemm_reference, lambda R: {"x": R, "w": 1}, {"y": 1}),
    moe: (moe_reference, lambda R: {"tokens": R, "weights": 1}, {"answers": 0}),
    statistics: (statistics_reference, lambda _: {"x": 1}, {"y": 1}),
}


@pytest.mark.parametrize("R", [1, 2, 4])
@pytest.mark.parametrize("wanted", SIZES, ids=lambda f: f.__name__)
def test_the_same_terms_as_by_hand(wanted: Callable[..., collectives.Collective], R: int) -> None:
    reference, inputs, outputs = SIZES[wanted]
    made = collectives.custom(
        "reference",
        ranks=R,
        inputs=inputs(R),
        outputs={name: size or R for name, size in outputs.items()},
        expect=gc3.sequential(reference),
    ).model()
    other = wanted(R).model()
    for rank in range(R):
        for index in range(made.output_chunks(rank)):
            assert made.expected_value(rank, index) == other.expected_value(rank, index)


def add_norm_as(reference: Callable[[Calls], None]) -> Callable[[int], collectives.Collective]:
    """AllReduce, residual and norm; all ranks have the same residual, of which each adds its own rows."""

    def made(R: int) -> collectives.Collective:
        return collectives.custom(
            "add_norm",
            ranks=R,
            inputs={"x": R, "residual": 1, "gain": 1},
            outputs={"y": R},
            expect=gc3.sequential(reference),
        )

    return made


def fused_reference(call: Calls) -> None:
    call("reducescatter", "x", "rows")
    call("add", "rows", "residual", out="total")
    call(norm, "total", "gain", out="part")
    call("allgather", "part", "y")


def scatter(R: int, *, residuals: Sequence[int] = (0,), early: bool = False) -> None:
    """What the reference does, as one schedule; `residuals`: by how many ranks' residuals are added."""
    for own in range(R):
        total = gc3.chunk((own + 1) % R, "x", own).copy(own, "total", 0)
        if early:
            norm(total, gc3.chunk(own, "gain", 0), out=(own, "y", own))
        for step in range(2, R + 1):
            total = total.reduce(gc3.chunk((own + step) % R, "x", own))
        for away in residuals:
            total = total.reduce(gc3.chunk((own + away) % R, "residual", 0))
        if not early:
            norm(total, gc3.chunk(own, "gain", 0), out=(own, "y", own))
        for step in range(1, R):
            gc3.chunk(own, "y", own).copy((own + step) % R, "y", own)


def scatter_rows(R: int) -> None:
    scatter(R)


def test_a_fused_program_is_proven_against_calls() -> None:
    for R in (2, 3, 4):
        right = gc3.algorithm(add_norm_as(fused_reference), scratch=["total"])(scatter_rows)
        gc3.compile(right, R=R).verify()


@pytest.mark.parametrize(
    ("wrong", "holds"),
    [
        ({"residuals": ()}, "norm(x[0] of rank 0 + x[0] of rank 1, gain[0] of rank 0)"),
        ({"residuals": (0, 0)}, "norm(x[0] of rank 0 + 2 x residual[0] of rank 0 + x[0] of rank 1, gain[0] of rank 0)"),
        ({"residuals": (1,)}, "norm(x[0] of rank 0 + x[0] of rank 1 + residual[0] of rank 1, gain[0] of rank 0)"),
        ({"early": True}, "norm(x[0] of rank 1, gain[0] of rank 0)"),
    ],
)
def test_a_fused_program_that_differs_is_refused_with_both_terms(wrong: dict[str, Any], holds: str) -> None:
    def written(R: int) -> None:
        scatter(R, **wrong)

    algorithm = gc3.algorithm(add_norm_as(fused_reference), scratch=["total"])(written)
    with pytest.raises(gc3.UserError) as caught:
        gc3.compile(algorithm, R=2)
    said = str(caught.value)
    assert "must hold norm(x[0] of rank 0 + residual[0] of rank 0 + x[0] of rank 1, gain[0] of rank 0)" in said
    assert f"but holds {holds}" in said
    assert "last written here (" in said


def test_allreduce_then_norm_of_equal_chunks() -> None:
    made = collectives.custom(
        "whole",
        ranks=2,
        inputs={"x": 2, "residual": 2, "gain": 1},
        outputs={"y": 2, "sum": 2},
        expect=gc3.sequential(norm_reference),
    ).model()
    assert made.expected_value(0, 1) == [
        "norm(x[1] of rank 0 + residual[1] of rank 0 + x[1] of rank 1, gain[0] of rank 0)"
    ]
    assert add_norm(2).model().expected_value(0, 0) == made.expected_value(0, 0)


WRONG: list[tuple[Callable[[Calls], Any], str]] = [
    (
        lambda call: call("allreduce", "z", "y"),
        "call 1 of the sequential program, allreduce: there is no 'z' yet, but x, g, some, none",
    ),
    (lambda call: call("allreduce", "x"), "a collective has a source and a target"),
    (lambda call: call("alltoall", "x", "y"), "'x' has 3 chunks, which alltoall of 2 cannot cut"),
    (lambda call: call("nothing", "x", "y"), "call 1 of the sequential program, nothing: "),
    (lambda call: call(norm, "x"), "norm: out= names its 1 results"),
    (lambda call: call(stats, "x", out="y"), "stats: out= names its 2 results"),
    (lambda call: call(norm, out="y"), "no operand"),
    (lambda call: call(norm, "x", "g", out="y"), "rank 0 has 3 of 'x', 2 of 'g'"),
    (lambda call: call("add", "x", "x"), "out= names the result"),
    (lambda call: call("allreduce", "x", "z"), "no call of the sequential program makes 'y'"),
    (lambda call: call("allgather", "x", "y"), "makes [6, 6] chunks of 'y', not [3, 3]"),
    (lambda call: call(norm, "x", out=None), "call 1 of the sequential program, norm: out= is None; expected the name"),
    (lambda call: call("add", "x", "x", out=["y", 3]), "add: out= is 3; expected the name of a tensor"),
    (lambda call: call("add", "x", "x", out=["y", "z"]), "out= names the result"),
    (lambda call: call(norm, ["x"], out="y"), "norm: an operand is ['x']; expected the name of a tensor"),
    (lambda call: call("broadcast", "x", "y", root="a"), "broadcast: root='a'; expected a rank below 2"),
    (lambda call: call("broadcast", "x", "y", root=2), "broadcast: root=2; expected a rank below 2"),
    (lambda call: call("allgather", "some", "y"), "'some' has 0 or 2 chunks, which allgather of 2 cannot cut"),
    (lambda call: call("reducescatter", "none", "y"), "'none' has 0 chunks, which reducescatter of 2 cannot cut"),
    (lambda call: (call("alltonext", "x", "z"), call("add", "z", out="y")), "it holds nothing on some rank"),
]


@pytest.mark.parametrize(("wrong", "why"), WRONG)
def test_wrong_calls(wrong: Callable[[Calls], None], why: str) -> None:
    sizes = {"x": 3, "g": 2, "some": [0, 2], "none": 0}
    with pytest.raises(gc3.UserError) as caught:
        collectives.custom("c", ranks=2, inputs=sizes, outputs={"y": 3}, expect=gc3.sequential(wrong))
    assert why in str(caught.value)
    assert "test_sequential.py" in str(caught.value)


def test_what_is_no_program() -> None:
    with pytest.raises(gc3.UserError, match="expected a function that makes calls"):
        gc3.sequential(3)  # pyright: ignore[reportArgumentType]


def test_what_only_a_root_has_is_cut_by_its_chunks() -> None:
    made = collectives.custom(
        "c",
        ranks=2,
        inputs={"x": [0, 4]},
        outputs={"y": 2},
        expect=gc3.sequential(lambda call: call("scatter", "x", "y", root=1)),
    ).model()
    assert made.expected_value(0, 1) == ["x[1] of rank 1"]


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (gc3.op("norm", cost=2.0), "two operations have the name 'norm' and other costs: None, 2.0"),
        (gc3.op("norm", results=2), "two operations have the name 'norm' and other numbers of results: 1, 2"),
    ],
)
def test_one_name_is_of_one_operation(other: gc3.Operation, why: str) -> None:
    def reference(call: Calls) -> None:
        call(norm, "x", out="y")
        call(other, "x", out=["z", "rest"][: other.results])

    with pytest.raises(gc3.UserError) as caught:
        collectives.custom("c", ranks=2, inputs={"x": 1}, outputs={"y": 1, "z": 1}, expect=gc3.sequential(reference))
    assert why in str(caught.value)
