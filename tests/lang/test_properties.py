"""Properties of operations: declared, kept, used in proofs, refused where they are missing, tested on data."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest

import gc3
from gc3 import _core, chunk, collectives
from gc3.datatypes import Array
from gc3.properties import check, describe
from property_programs import FUNCTIONS, FUSED, Fused, data, gelu, norm, scale, scale_before_the_sum


def test_how_they_are_declared() -> None:
    right: tuple[tuple[Any, str], ...] = (
        ({"linear": (0, 1), "rowwise": 0}, "linear in operands 0, 1 and rowwise in operand 0"),
        ("elementwise", "elementwise"),
        ({"linear": "all"}, "linear"),
        ({"linear": []}, ""),
        (None, ""),
    )
    for given, said in right:
        operation = gc3.op("f", properties=given)
        assert describe(operation.properties) == said
        assert copy.deepcopy(operation).properties == operation.properties
    for wrong, why in (
        ("smooth", "there is no property 'smooth'; expected one of linear, rowwise, elementwise"),
        ({"linear": -1}, "an operand of 'linear'"),
        ({"linear": 32}, "an operand of 'linear'"),
        ({"linear": "first"}, "an operand of 'linear'"),
        (["linear"], "or a mapping"),
        (3, "or a mapping"),
    ):
        with pytest.raises(gc3.UserError, match=f"GC3-L017.*{why}"):
            gc3.op("f", properties=cast("Any", wrong))


@pytest.mark.parametrize("fused", FUSED, ids=lambda f: f.algorithm.name)
def test_files_keep_them(fused: Fused, tmp_path: object) -> None:
    program = gc3.compile(fused.algorithm, R=3)
    assert _core.Program.from_text(program.text) == program.core
    assert _core.Program.from_bytes(program.core.to_bytes()) == program.core
    for ending in (".gc3", ".txt"):
        path = f"{tmp_path}/program{ending}"
        program.save(path)
        again = gc3.Program.load(path)
        assert again == program
        assert again.collective.operations == program.collective.operations


def operations(fused: Fused) -> set[str]:
    return {name for name, _, _ in gc3.compile(fused.algorithm, R=2).core.applications()}


def test_runs_are_equal_to_the_sequential_form() -> None:
    for fused in FUSED[1:3]:
        for check_it in (False, True):
            program = gc3.compile(fused.algorithm, R=2)
            names = operations(fused)
            bound = program.bind({name: FUNCTIONS[name] for name in names}, check=check_it)
            given = data(fused, 2, 1)
            shape = given["x", 0].shape[0] // 2, given["x", 0].shape[1]
            shapes = {name: shape for name in program.core.lengths if name not in fused.inputs}
            found = bound.run(
                {name: [given[name, rank] for rank in range(2)] for name in fused.inputs}, shapes=cast("Any", shapes)
            )
            for (name, rank), wanted in fused.expected(2, given).items():
                assert np.array_equal(found[name][rank], wanted)


def test_a_file_cannot_declare_for_whoever_binds(tmp_path: object) -> None:
    path = f"{tmp_path}/program.gc3"
    gc3.compile(scale_before_the_sum, R=2).save(path)
    program = gc3.Program.load(path)
    with pytest.raises(
        gc3.UserError, match="the file of the program declares 'scale' linear in operands 0, 1 and roww"
    ):
        program.bind(FUNCTIONS)
    with pytest.raises(gc3.UserError, match="declares elementwise of 'gelu', and the operation nothing"):
        program.bind({scale: FUNCTIONS["scale"], gc3.op("gelu"): FUNCTIONS["gelu"]})
    program.bind({scale: FUNCTIONS["scale"], gelu: FUNCTIONS["gelu"]})


def test_other_reductions_and_operands_are_refused() -> None:
    fused = FUSED[1]
    program = gc3.compile(fused.algorithm, R=2)
    bound = program.bind({name: FUNCTIONS[name] for name in operations(fused)})
    given = data(fused, 2, 1)
    tensors = {name: [given[name, rank] for rank in range(2)] for name in fused.inputs}
    with pytest.raises(gc3.UserError, match=r"GC3-C004.*the reduction max: 'scale' is declared linear"):
        bound.run(tensors, op="max", shapes={"part": (2, 3), "y": (2, 3)})
    wide = gc3.op("wide", properties={"linear": 2})

    def body(R: int) -> None:
        wide(chunk(0, "x", 0), out=(0, "y", 0))

    many = gc3.algorithm(same(lambda v: wide(v(0, "x", 0))))(body)
    with pytest.raises(gc3.UserError, match="'wide' is declared linear in operand 2, and applied to 1 operands"):
        gc3.compile(many, R=2).bind({"wide": np.copyto})


def same(wanted: Callable[[Any], Any], inputs: int = 2) -> Callable[[int], collectives.Collective]:
    """Rank 0 gets what `wanted` makes of the chunks of "x"."""
    return lambda R: collectives.custom(
        "wanted",
        ranks=R,
        inputs={"x": inputs},
        outputs={"y": 1},
        expect=lambda v, rank, _, __: wanted(v) if rank == 0 else None,
    )


def refused(wanted: Callable[[Any], Any], made: Callable[[], None]) -> str:
    def body(R: int) -> None:
        made()

    with pytest.raises(gc3.UserError) as caught:
        gc3.compile(gc3.algorithm(same(wanted), scratch=["part"])(body), R=2)
    return str(caught.value)


plain = gc3.op("plain")


def test_an_operation_before_the_sum_must_be_linear() -> None:
    def made() -> None:
        first = plain(chunk(0, "x", 0), out=(0, "y", 0))
        first.reduce(plain(chunk(0, "x", 1), out=(0, "part", 0)))

    said = refused(lambda v: plain(v(0, "x", 0) + v(0, "x", 1)), made)
    assert "must hold plain(x[0] of rank 0 + x[1] of rank 0), but holds plain(x[0] of rank 0) + plain(x[1] of" in said
    assert "equal if 'plain' were linear in operand 0, which gc3.op(properties=) does not declare" in said
    assert "applied here (" in said
    assert "test_properties.py:" in said


def test_a_part_of_a_row_needs_an_element_wise_operation() -> None:
    def made() -> None:
        norm(chunk(0, "x", 0), out=(0, "y", 0))

    said = refused(lambda v: norm.parts([v(0, "x", 0), v(0, "x", 1)], cut="columns")[0], made)
    assert "must hold columns 0 of norm(x[0] of rank 0, x[1] of rank 0), but holds norm(x[0] of rank 0)" in said
    assert "equal if 'norm' were elementwise in operand 0" in said
    said = refused(lambda v: plain.parts([v(0, "x", 0), v(0, "x", 1)], cut="rows")[0], lambda: plain_of(0))
    assert "equal if 'plain' were rowwise in operand 0" in said
    # The other part of it.
    said = refused(lambda v: gelu.parts([v(0, "x", 0), v(0, "x", 1)], cut="rows")[1], lambda: gelu_of(0))
    assert "must hold gelu(x[1] of rank 0), but holds gelu(x[0] of rank 0)" in said


def plain_of(index: int) -> None:
    plain(chunk(0, "x", index), out=(0, "y", 0))


def gelu_of(index: int) -> None:
    gelu(chunk(0, "x", index), out=(0, "y", 0))


def test_scales_of_ranks_are_no_common_factor() -> None:
    """Data that each rank has scaled by its own factor, added up and scaled by one of them."""

    def made() -> None:
        total = chunk(0, "x", 0).copy(0, "part", 0).reduce(chunk(1, "x", 0))
        scale(total, chunk(0, "x", 1), out=(0, "y", 0))

    said = refused(lambda v: scale(v(0, "x", 0), v(0, "x", 1)) + scale(v(1, "x", 0), v(1, "x", 1)), made)
    assert "missing: scale(x[0] of rank 1, x[1] of rank 1)" in said
    assert "too much: scale(x[0] of rank 1, x[1] of rank 0)" in said


def test_linear_in_two_operands_and_of_each_other() -> None:
    """(a + b) (c + d), and a product of products."""

    def terms(v: Any) -> Any:
        a, b = v(0, "x", 0), v(1, "x", 0)
        c, d = v(0, "x", 1), v(1, "x", 1)
        return sum(scale(scale(one, other), a) for one in (a, b) for other in (c, d))

    def body(R: int) -> None:
        one = chunk(0, "x", 0).copy(0, "part", 0).reduce(chunk(1, "x", 0))
        other = chunk(0, "x", 1).copy(0, "part", 1).reduce(chunk(1, "x", 1))
        scale(scale(one, other, out=(0, "part", 2)), chunk(0, "x", 0), out=(0, "y", 0))

    program = gc3.compile(gc3.algorithm(same(terms), scratch=["part"])(body), R=2)
    program.verify()
    said = refused(lambda v: sum([terms(v), v(0, "x", 0)]), lambda: body(2))
    assert "missing: x[0] of rank 0" in said


def test_a_linear_operation_of_a_multiple() -> None:
    """Of 2 a + b it makes twice what it makes of a, and what it makes of b."""

    def body(R: int) -> None:
        twice = chunk(0, "x", 0).copy(0, "part", 0)
        twice = twice.reduce(chunk(0, "x", 0)).reduce(chunk(1, "x", 0))
        scale(twice, chunk(0, "x", 1), out=(0, "y", 0))

    def wanted(a: int, b: int) -> Callable[[Any], Any]:
        return lambda v: sum(scale(v(rank, "x", 0), v(0, "x", 1)) for rank in [0] * a + [1] * b)

    gc3.compile(gc3.algorithm(same(wanted(2, 1)), scratch=["part"])(body), R=2).verify()
    assert "too much: scale(" in refused(wanted(1, 1), lambda: body(2))
    assert "missing: scale(" in refused(wanted(2, 2), lambda: body(2))


def test_sums_that_are_too_long_to_list_are_refused() -> None:
    """An argument that doubles 40 times has more terms than may be counted."""

    def made() -> None:
        part = chunk(0, "x", 0).copy(0, "part", 0)
        for k in range(1, 80):
            part = part.reduce(part.copy(0, "part", k))
        scale(part, chunk(0, "x", 1), out=(0, "y", 0))

    assert "2^62 or more x scale(" in refused(lambda v: scale(v(0, "x", 0), v(0, "x", 1)), made)


def test_what_sequential_programs_refuse() -> None:
    references: tuple[tuple[Callable[[Any], None], str], ...] = (
        (lambda call: call(norm, "x", out="y", cut="halves"), "cut='halves'; expected 'rows' or 'columns'"),
        (lambda call: call("allreduce", "x", "y", cut="rows"), "cut='rows'; expected 'rows' or 'columns', of an op"),
    )
    for reference, why in references:
        with pytest.raises(gc3.UserError, match=why):
            collectives.custom("c", ranks=2, inputs={"x": 1}, outputs={"y": 1}, expect=gc3.sequential(reference))
    for wrong in (
        lambda: norm.parts(cut="rows"),
        lambda: norm.parts([], cut="rows"),
        lambda: cast("Any", norm).parts(3, cut="rows"),
    ):
        with pytest.raises(gc3.UserError, match=r"GC3-L020.*norm.parts: each operand is a value"):
            cast("Any", wrong)()
    with pytest.raises(gc3.UserError, match=r"two operations have the name 'norm' and other properties: rowwise"):
        same(lambda v: norm(v(0, "x", 0)) + gc3.op("norm")(v(0, "x", 0)))(2)


def biased(x: Array, w: Array, out: Array) -> None:
    np.matmul(x, w, out=out)
    out += 1


def absolute(x: Array, out: Array) -> None:
    np.abs(x, out=out)


def squared(x: Array, w: Array, out: Array) -> None:
    np.multiply(x, w * w, out=out)


def of_nine(x: Array, out: Array) -> None:
    np.copyto(out, np.reshape(x, (3, 3)))


def shifted(x: Array, out: Array) -> None:
    np.multiply(x, np.arange(x.shape[0])[:, None], out=out)


@pytest.mark.parametrize(
    ("function", "properties", "operands", "why"),
    [
        (biased, {"linear": 0}, 2, "declared linear in operand 0, but makes other values of zeros than zeros"),
        (absolute, {"linear": 0}, 1, "of a sum than the sum of what it makes of the terms"),
        (squared, {"linear": (0, 1)}, 2, "declared linear in operand 1"),
        (FUNCTIONS["expert"], {"rowwise": 0}, 2, "declared rowwise in operands 0, but makes other values of a part in"),
        (shifted, {"rowwise": 0}, 1, "makes other values of a part in dimension 0"),
        (FUNCTIONS["norm"], {"elementwise": 0}, 2, "declared elementwise in operands 0, but raises on 1 of 3 in"),
        (of_nine, "elementwise", 1, "raises on 1 of 3 in dimension 0"),
    ],
)
@pytest.mark.parametrize("dtype", [np.int64, np.float32, np.float16])
def test_data_refute_what_is_not_true(
    function: Callable[..., None], properties: Any, operands: int, why: str, dtype: Any
) -> None:
    numbers = np.random.default_rng(3)
    given = [numbers.integers(-3, 4, (3, 3)).astype(dtype) for _ in range(operands)]
    with pytest.raises(ValueError, match=why):
        check(function, gc3.op("f", properties=properties).properties, given, [np.zeros((3, 3), dtype)])


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, np.float64, np.float32, np.float16])
@pytest.mark.parametrize("rows", [0, 1, 2, 7])
def test_data_do_not_refute_what_is_true(rows: int, dtype: Any) -> None:
    numbers = np.random.default_rng(3)
    x = numbers.standard_normal((rows, 64)).astype(dtype) if np.dtype(dtype).kind == "f" else np.ones((rows, 64), dtype)
    w = numbers.integers(0, 3, (64, 64)).astype(dtype)
    for name, operands in (("scale", [x, w]), ("gelu", [x])):
        operation = {"scale": scale, "gelu": gelu}[name]
        check(FUNCTIONS[name], operation.properties, operands, [np.zeros((rows, 64), dtype)])


def test_a_refuted_property_is_one_error_with_operation_rank_and_line() -> None:
    fused = FUSED[1]
    program = gc3.compile(fused.algorithm, R=2)
    bound = program.bind({"scale": biased, "gelu": FUNCTIONS["gelu"]}, check=True)
    given = data(fused, 2, 1)
    shapes: Any = {"part": (2, 3), "y": (2, 3)}
    with pytest.raises(gc3.UserError) as caught:
        bound.run({name: [given[name, rank] for rank in range(2)] for name in fused.inputs}, shapes=shapes)
    said = str(caught.value)
    assert "GC3-R029" in said
    assert "scale of rank " in said
    assert "(apply, property_programs.py:" in said
    assert "has raised ValueError: it is declared linear in operand 0, but makes other values of zeros than" in said
