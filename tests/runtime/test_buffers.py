"""Laying out the buffers of a run from the caller's arrays."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from gc3 import UserError
from gc3.collectives import BUILTIN
from gc3.runtime.buffers import bind

RANKS = 3


def arrays(blocks: int, count: int = 5, dtype: Any = np.float32) -> list[Any]:
    return [np.arange(blocks * count).astype(dtype) + np.array(100 * r, dtype) for r in range(RANKS)]


def test_out_of_place_reads_the_callers_memory_and_makes_outputs() -> None:
    inputs = arrays(1)
    bound = bind(BUILTIN["allgather"].model(RANKS), inputs, None, None, None)
    assert bound.count == 5
    assert bound.dtype == "float32"
    for rank in range(RANKS):
        assert np.shares_memory(bound.inputs[rank], inputs[rank])
        assert bound.outputs[rank].size == RANKS * 5


@pytest.mark.parametrize("name", ["allreduce", "allgather", "reducescatter", "alltoall", "alltonext"])
def test_in_place_lays_the_smaller_buffer_into_the_larger_and_keeps_the_inputs(name: str) -> None:
    model = BUILTIN[name].model(RANKS, chunks=2, in_place=True)
    inputs = arrays(model.input_blocks(0))
    before = [a.copy() for a in inputs]
    bound = bind(model, inputs, None, None, None)
    for rank in range(RANKS):
        a, b = bound.inputs[rank], bound.outputs[rank]
        assert np.shares_memory(a, b)
        assert not np.shares_memory(a, inputs[rank])
        np.testing.assert_array_equal(a, before[rank])
        larger, smaller = (a, b) if a.size > b.size else (b, a)
        offset = smaller.__array_interface__["data"][0] - larger.__array_interface__["data"][0]
        own = rank * 5 * 4 if name in ("allgather", "reducescatter") else 0
        assert offset == own
        b[:] = -1
        np.testing.assert_array_equal(inputs[rank], before[rank])


def test_in_place_output_of_a_reducescatter_reaches_the_callers_array() -> None:
    model = BUILTIN["reducescatter"].model(RANKS, in_place=True)
    outputs = [np.zeros(5, np.float32) for _ in range(RANKS)]
    bound = bind(model, arrays(RANKS), outputs, None, None)
    for rank in range(RANKS):
        bound.outputs[rank][:] = rank
    assert [out is result for out, result in zip(outputs, bound.finish(), strict=True)] == [True] * RANKS
    assert [out[0] for out in outputs] == [0, 1, 2]


def test_aliasing_on_purpose_works_on_the_callers_memory() -> None:
    inputs = arrays(RANKS)
    outputs = [a[rank * 5 : rank * 5 + 5] for rank, a in enumerate(inputs)]
    bound = bind(BUILTIN["reducescatter"].model(RANKS, in_place=True), inputs, outputs, None, None)
    assert all(bound.inputs[r] is not None and np.shares_memory(bound.inputs[r], inputs[r]) for r in range(RANKS))
    whole = arrays(1)
    bound = bind(BUILTIN["allreduce"].model(RANKS, in_place=True), whole, whole, None, None)
    assert all(np.shares_memory(bound.outputs[r], whole[r]) for r in range(RANKS))
    full = arrays(RANKS)
    own = [a[rank * 5 : rank * 5 + 5] for rank, a in enumerate(full)]
    before = [a.copy() for a in own]
    bound = bind(BUILTIN["allgather"].model(RANKS, in_place=True), own, full, None, None)
    for rank in range(RANKS):
        assert np.shares_memory(bound.inputs[rank], full[rank])
        np.testing.assert_array_equal(bound.inputs[rank], before[rank])


def test_rooted_collectives_have_buffers_where_they_need_them() -> None:
    model = BUILTIN["broadcast"].model(RANKS, root=1, in_place=True)
    bound = bind(model, [None, np.ones(4, np.int8), None], None, None, None)
    assert [a is None for a in bound.inputs] == [True, False, True]
    assert all(a is not None for a in bound.outputs)
    bound = bind(BUILTIN["gather"].model(RANKS, root=2), arrays(1), None, None, None)
    assert [a is None for a in bound.results] == [True, True, False]


def test_results_keep_the_shape_of_inputs_of_their_size() -> None:
    inputs = [np.ones((2, 3), np.float16) for _ in range(RANKS)]
    assert bind(BUILTIN["allreduce"].model(RANKS), inputs, None, None, None).results[0].shape == (2, 3)
    assert bind(BUILTIN["allgather"].model(RANKS), inputs, None, None, None).results[0].shape == (18,)


def test_strided_and_bfloat16_and_lists_and_nothing_at_all() -> None:
    model = BUILTIN["allreduce"].model(RANKS)
    strided = [np.arange(10, dtype=np.int32)[::2] for _ in range(RANKS)]
    np.testing.assert_array_equal(bind(model, strided, None, None, None).inputs[0], [0, 2, 4, 6, 8])
    assert bind(model, arrays(1, dtype=ml_dtypes.bfloat16), None, None, None).dtype == "bfloat16"
    assert bind(model, [[1, 2]] * RANKS, None, None, "bfloat16").dtype == "bfloat16"
    for in_place in (False, True):
        empty = bind(BUILTIN["allgather"].model(RANKS, in_place=in_place), [np.zeros(0)] * RANKS, None, None, None)
        assert empty.count == 0
        assert empty.results[0].size == 0


def test_one_array_may_serve_several_ranks_as_input() -> None:
    same = np.ones(4)
    for in_place in (False, True):
        bind(BUILTIN["allreduce"].model(RANKS, in_place=in_place), [same] * RANKS, None, None, None)


ONE = np.ones(4, np.float32)


def ones() -> list[Any]:
    return [ONE.copy() for _ in range(RANKS)]


def read_only() -> Any:
    array = ONE.copy()
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"inputs": [ONE]}, "1 inputs for 3 ranks"),
        ({"inputs": [ONE, None, ONE]}, "rank 1 needs an input of 4 elements"),
        ({"inputs": [ONE, ONE, np.ones(5, np.float32)]}, "rank 2 has 5 elements where 4"),
        ({"inputs": [ONE, ONE, np.ones(4)]}, "rank 2 is float64; expected float32"),
        ({"inputs": [np.zeros(4, "M8[s]")] * 3}, "datetime64"),
        ({"dtype": "int8"}, "rank 0 is float32; expected int8"),
        ({"count": 3}, "rank 0 has 4 elements where 3"),
        ({"count": -1}, "count=-1"),
        ({"outputs": [ONE[:3]] * 3}, "output of rank 0 has 3 elements"),
        ({"outputs": [[0, 0, 0, 0]] * 3}, "not a NumPy array"),
        ({"outputs": [read_only()] * 3}, "contiguous and writeable"),
        ({"outputs": [np.ones(8, np.float32)[::2]] * 3}, "contiguous and writeable"),
        ({"outputs": [ONE] * 3}, "output of rank 1 overlaps the output of rank 0"),
    ],
)
@pytest.mark.parametrize("in_place", [False, True])
def test_mistakes_are_reported(changes: dict[str, Any], message: str, in_place: bool) -> None:
    model = BUILTIN["allreduce"].model(RANKS, in_place=in_place)
    given = {"inputs": ones(), "outputs": None, "count": None, "dtype": None} | changes
    with pytest.raises(UserError, match=message):
        bind(model, **given)


def test_out_of_place_refuses_outputs_on_inputs() -> None:
    inputs = ones()
    with pytest.raises(UserError, match="overlaps"):
        bind(BUILTIN["allreduce"].model(RANKS), inputs, inputs, None, None)


def test_in_place_refuses_an_output_on_another_ranks_input() -> None:
    inputs = ones()
    before = [a.copy() for a in inputs]
    with pytest.raises(UserError, match="overlaps"):
        bind(BUILTIN["allreduce"].model(RANKS, in_place=True), inputs, inputs[1:] + inputs[:1], None, None)
    np.testing.assert_array_equal(inputs, before)


def test_nothing_says_the_size() -> None:
    with pytest.raises(UserError, match="dtype="):
        bind(BUILTIN["broadcast"].model(2), [None, None], None, None, None)


def test_masked_arrays_are_refused() -> None:
    masked = np.ma.masked_array(np.ones(5, np.float32), [True] * 5)
    plain = arrays(1)
    with pytest.raises(UserError, match="mask would be lost"):
        bind(BUILTIN["allreduce"].model(RANKS), [masked, *plain[1:]], None, None, None)
    with pytest.raises(UserError, match="mask would be lost"):
        bind(BUILTIN["allreduce"].model(RANKS), plain, [masked, *arrays(1)[1:]], None, None)
