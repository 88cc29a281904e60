"""The data and the reference of `--check`: exact in every type and order, and sharp."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gc3 import UserError, datatypes
from gc3.checking import POISON, Case
from gc3.collectives import BUILTIN, custom

NATIVE = {"sum": np.add, "avg": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}


def outputs_of(case: Case, inputs: list[Any]) -> list[Any]:
    """What a correct run leaves."""
    outputs = case.poisoned_outputs()
    for rank, start, values in case.expected(inputs):
        outputs[rank][start : start + values.size] = values
    return outputs


def reduced_as_a_tree(parts: list[Any], op: str) -> Any:
    """Reduces in the data type itself, pairwise from the back: another order than the reference's."""
    with np.errstate(over="ignore"):
        while len(parts) > 1:
            left, right = parts.pop(), parts.pop()
            parts.insert(0, NATIVE[op](left, right).astype(left.dtype))
    return parts[0]


@pytest.mark.parametrize("dtype", datatypes.DTYPES)
@pytest.mark.parametrize("op", datatypes.OPS)
@pytest.mark.parametrize("ranks", [1, 2, 3, 7, 16, 100])
def test_results_do_not_depend_on_the_order_or_the_precision(dtype: str, op: str, ranks: int) -> None:
    case = Case(BUILTIN["allreduce"].model(ranks), 257, dtype, op)
    if op in ("sum", "avg") and ranks > {"float8_e4m3fn": 16, "float8_e5m2": 8}.get(dtype, ranks):
        with pytest.raises(UserError, match="GC3-L017"):
            case.inputs()
        return
    inputs = case.inputs()
    result = reduced_as_a_tree(list(inputs), op)
    if op == "avg":
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


@pytest.mark.parametrize("dtype", datatypes.DTYPES)
@pytest.mark.parametrize("op", datatypes.OPS)
def test_an_untouched_output_is_wrong_everywhere(dtype: str, op: str) -> None:
    case = Case(BUILTIN["allreduce"].model(4), 64, dtype, op)
    found = case.compare(case.inputs(), case.poisoned_outputs())
    assert found.wrong == found.elements == 4 * 64


def test_poison_is_what_outputs_hold() -> None:
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
    assert found.elements == 10  # the second chunk of rank 0 may hold anything


def test_sums_that_no_type_holds_are_refused() -> None:
    with pytest.raises(UserError, match=r"bfloat16 holds whole numbers up to 256.*sum of 300"):
        Case(BUILTIN["allreduce"].model(300), 1, "bfloat16").inputs()
