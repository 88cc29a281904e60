"""The data and the reference of `--check`: exact in every type and order, and sensitive to errors."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gc3 import UserError, datatypes
from gc3.collectives import BUILTIN, custom
from gc3.runtime import measure
from gc3.runtime.checking import FUNCTIONS, POISON, Case

pytestmark = pytest.mark.python_only

PAIRS = [(dtype, op) for dtype in datatypes.DTYPES for op in datatypes.OPS if datatypes.takes(op, dtype)]


def outputs_of(case: Case, inputs: list[Any]) -> list[Any]:
    """The outputs of a correct run."""
    outputs = case.poisoned_outputs()
    for rank, start, values in case.expected(inputs):
        outputs[rank][start : start + values.size] = values
    return outputs


def test_each_reduction_has_its_function() -> None:
    told = "each reduction of cpp/gc3/model/types.def wants its function of NumPy in python/gc3/runtime/checking.py"
    assert FUNCTIONS.keys() == {*datatypes.OPS}, told


def reduced_as_a_tree(parts: list[Any], op: str) -> Any:
    """Reduces in the data type itself, pairwise from the back: an order that differs from the reference's."""
    with np.errstate(over="ignore"):
        while len(parts) > 1:
            left, right = parts.pop(), parts.pop()
            parts.insert(0, FUNCTIONS[op](left, right).astype(left.dtype))
    return parts[0]


@pytest.mark.parametrize(("dtype", "op"), PAIRS)
@pytest.mark.parametrize("ranks", [1, 2, 3, 7, 16, 100])
def test_results_do_not_depend_on_the_order_or_the_precision(dtype: str, op: str, ranks: int) -> None:
    case = Case(BUILTIN["allreduce"].model(ranks), 257, dtype, op)
    if op in ("sum", "avg") and ranks > {"float8_e4m3fn": 16, "float8_e5m2": 8}.get(dtype, ranks):
        with pytest.raises(UserError, match="GC3-L017"):
            case.inputs()
        return
    inputs = case.inputs()
    result = reduced_as_a_tree(list(inputs), op)
    if op == "avg" and result.dtype.kind == "c":
        result = result / ranks
    elif op == "avg":
        exact = [int(total) for total in result.astype(object)]
        towards_zero = [abs(n) // ranks * (-1 if n < 0 else 1) for n in exact]
        quotients = np.array(exact) / ranks if result.dtype.kind not in "iu" else np.array(towards_zero)
        result = quotients.astype(result.dtype)
    assert case.compare(inputs, [result] * ranks).first is None


@pytest.mark.parametrize("name", BUILTIN)
@pytest.mark.parametrize("count", [0, 1, 2, 17, 96])
@pytest.mark.parametrize("chunks", [1, 4])
def test_right_outputs_pass_and_one_wrong_element_does_not(name: str, count: int, chunks: int) -> None:
    root = 2 if BUILTIN[name].rooted else 0
    model = BUILTIN[name].model(3, chunks=chunks, root=root)
    case = Case(model, count, "int32", "sum", seed=1)
    inputs = case.inputs()
    outputs = outputs_of(case, inputs)
    good = case.compare(inputs, outputs)
    assert good.ok
    compared = [r for r in range(3) if outputs[r] is not None and not (name == "alltonext" and r == 0)]
    assert good.elements == sum(outputs[r].size for r in compared)
    if count:
        rank, index = compared[-1], outputs[compared[-1]].size - 1
        right = outputs[rank][index].item()
        outputs[rank][index] += 1
        bad = case.compare(inputs, outputs)
        assert (bad.wrong, bad.ok) == (1, False)
        assert bad.first is not None
        found = (bad.first.rank, bad.first.index, bad.first.expected, bad.first.got)
        assert found == (rank, index, right, right + 1)


@pytest.mark.parametrize(("dtype", "op"), PAIRS)
def test_an_untouched_output_is_wrong_everywhere(dtype: str, op: str) -> None:
    case = Case(BUILTIN["allreduce"].model(4), 64, dtype, op)
    found = case.compare(case.inputs(), case.poisoned_outputs())
    assert found.wrong == found.elements == 4 * 64


def test_outputs_are_poisoned() -> None:
    assert Case(BUILTIN["allreduce"].model(1), 3, "uint8").poisoned_outputs()[0].tolist() == [POISON] * 3


def test_a_changed_input_is_seen_and_does_not_spoil_the_reference() -> None:
    case = Case(BUILTIN["allgather"].model(2), 8)
    inputs = case.inputs()
    outputs = outputs_of(case, inputs)
    inputs[1][3] += 1
    found = case.compare(inputs, outputs)
    assert (found.changed_inputs, found.wrong, found.ok) == ((1,), 0, False)


def test_ranks_blocks_and_places_differ_so_that_mixing_them_up_shows() -> None:
    case = Case(BUILTIN["alltoall"].model(4), 50, "float32")
    blocks = [tuple(block) for a in case.inputs() for block in a.reshape(4, 50).tolist()]
    assert len(set(blocks)) == 16
    assert not np.array_equal(case.input(0), Case(case.model, 50, "float32", seed=5).input(0))


def test_custom_collectives_are_checked_from_their_terms() -> None:
    mixed = custom(
        "mixed",
        inputs=[2, 1],
        outputs=[2, 1],
        expect={(0, 0): [(0, 1), (1, 0)], (1, 0): (0, 0)},
    )
    case = Case(mixed.model(), 5, "int64", "sum")
    inputs = case.inputs()
    outputs = [np.zeros(10, np.int64), inputs[0][:5].copy()]
    outputs[0][:5] = inputs[0][5:] + inputs[1]
    found = case.compare(inputs, outputs)
    assert found.ok
    assert found.elements == 10  # the second chunk of rank 0 may have any value


def test_sums_that_no_type_holds_are_refused() -> None:
    with pytest.raises(UserError, match=r"bfloat16 holds whole numbers up to 256.*sum of 300"):
        Case(BUILTIN["allreduce"].model(300), 1, "bfloat16").inputs()


def wrongly_reduced(parts: list[Any], multiplicities: dict[int, int], op: str) -> Any:
    """The reduction of the terms, each once except for the given ones."""
    taken = [part for k, part in enumerate(parts) for _ in range(multiplicities.get(k, 1))]
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return reduced_as_a_tree(taken, op)


def wrong_elements(right: Any, result: Any) -> int:
    """As `Case.compare` counts them on each rank, without the inputs drawn anew for each of many results."""
    return int(np.count_nonzero(result != right))


# The wrong outputs of the mutants of verify/mutation_test.cc: terms that are missing, repeated, exchanged for others,
# and two of these at once.
WRONG: list[tuple[int, ...]] = [
    (0,),
    (2,),
    (3,),
    (5,),
    (0, 0),
    (2, 2),
    (3, 3),
    (0, 2),
    (2, 0),
    (0, 3),
    (0, 0, 0),
    (0, 0, 3),
]


# Each type with every fourth number of ranks, each number with every fourth type; the others by `make nightly`.
RANKS = (2, 3, 6, 7, 8, 16, 40, 100)
TYPES = [d for d in datatypes.DTYPES if d != "bool"]
CASES = [
    pytest.param(dtype, ranks, marks=[pytest.mark.nightly] if (i + j) % 4 else [])
    for i, dtype in enumerate(TYPES)
    for j, ranks in enumerate(RANKS)
]


@pytest.mark.parametrize(("dtype", "ranks"), CASES)
def test_a_wrong_multiset_of_factors_shows(dtype: str, ranks: int) -> None:
    case = Case(BUILTIN["allreduce"].model(ranks), 256, dtype, "prod")
    parts: list[Any] = case.inputs()
    outputs: list[Any] = [right for _, _, right in case.expected(parts)]
    compared = case.compare(parts, outputs)
    assert compared.ok
    for wrong in WRONG:
        for first in {0, 1, ranks // 2, ranks - 1}:
            places = [(first + k) % ranks for k in range(len(wrong))]
            if len(set(places)) < len(wrong) or sum(wrong) + ranks == len(wrong):
                continue
            result = wrongly_reduced(list(parts), dict(zip(places, wrong, strict=True)), "prod")
            assert wrong_elements(outputs[0], result) > 0, (wrong, first)


HUNDRED = pytest.param(100, "float32", marks=pytest.mark.nightly)


@pytest.mark.parametrize(("ranks", "dtype"), [*itertools.product([2, 7, 16], datatypes.DTYPES), (100, "int8"), HUNDRED])
@pytest.mark.parametrize("op", ["min", "max"])
def test_each_missing_term_of_an_extremum_shows(dtype: str, op: str, ranks: int) -> None:
    """A term that counts twice is right here."""
    case = Case(BUILTIN["allreduce"].model(ranks), 2 * ranks, dtype, op)
    parts: list[Any] = case.inputs()
    _, _, right = next(iter(case.expected(parts)))
    assert case.compare(parts, [wrongly_reduced(list(parts), {0: 0}, op)] * ranks).wrong >= 2 * ranks
    for rank in range(ranks):
        assert wrong_elements(right, wrongly_reduced(list(parts), {rank: 0}, op)) >= 2, rank  # two places


@pytest.mark.parametrize(
    ("dtype", "op"), [pair for pair in PAIRS if pair[0] in ("int8", "int32", "float32") and pair[1] != "avg"]
)
@pytest.mark.parametrize("chunks", [1, 3])
def test_each_missing_term_shows_also_where_chunks_have_one_element(dtype: str, op: str, chunks: int) -> None:
    """No run of one element can show it of every term of an extremum: further ones follow."""
    ranks = 5
    case = Case(BUILTIN["allreduce"].model(ranks, chunks=chunks), chunks, dtype, op)

    def without(missing: dict[int, int], chunk: int) -> tuple[bool, int]:
        def run(inputs: list[Any], outputs: list[Any]) -> None:
            right, wrong = reduced_as_a_tree(list(inputs), op), wrongly_reduced(list(inputs), missing, op)
            right[chunk] = wrong[chunk]
            for output in outputs:
                output[:] = right

        inputs, outputs = case.inputs(), case.poisoned_outputs()
        run(inputs, outputs)
        compared = case.further(case.compare(inputs, outputs), run)
        return compared.ok, compared.elements

    ok, elements = without({}, 0)
    assert ok
    assert elements >= 16 * ranks
    for rank in range(ranks):
        assert not without({rank: 0}, chunks - 1)[0], rank


@pytest.mark.parametrize("op", ["prod", "min", "max"])
@pytest.mark.parametrize("dtype", ["int8", "float8_e4m3fn", "float32"])
def test_terms_of_custom_collectives_have_turns_too(dtype: str, op: str) -> None:
    """Chunk 0 of every rank meets chunk 1 of every rank, which is more than the narrow floats hold."""
    ranks = 12
    terms = [(rank, chunk) for rank in range(ranks) for chunk in range(2)]
    mixed = custom("mixed", inputs=[2] * ranks, outputs=[1] * ranks, expect={(r, 0): terms for r in range(ranks)})
    case = Case(mixed.model(), 50, dtype, op)
    inputs: list[Any] = case.inputs()
    parts = [a[:50] for a in inputs] + [a[50:] for a in inputs]
    assert case.compare(inputs, [reduced_as_a_tree(list(parts), op)] * ranks).ok
    for k in range(len(parts)):
        result = wrongly_reduced(list(parts), {k: 0}, op)
        assert case.compare(inputs, [result] * ranks).wrong > 0, k


def test_a_machine_without_proc_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(*_: object) -> None:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "open", absent)
    assert measure.machine()["cores"] >= 1
