"""Memory that a tool shares with the ranks it has started."""

from __future__ import annotations

import mmap
import os

import numpy as np
import pytest

from gc3.comm.tool_ranks import _Shared


def seen(shared: _Shared, span: tuple[int, int]) -> bytes:
    """The values that a rank finds there."""
    return os.pread(shared.file, span[1], span[0])


@pytest.mark.parametrize("count", [1, 1000, 1024, 1025])
def test_buffers_apart_begin_on_pages_of_their_own(count: int) -> None:
    given, result = np.arange(count, dtype=np.float32), np.full(count, 7, np.float32)
    shared = _Shared(given, result)
    try:
        assert shared.input == (0, 4 * count)
        assert shared.output is not None
        assert shared.output[0] % mmap.PAGESIZE == 0
        assert shared.output[0] >= 4 * count
        assert seen(shared, shared.input) == given.tobytes()
        assert seen(shared, shared.output) == result.tobytes()
        with open(shared.file, "r+b", closefd=False) as file:
            file.seek(shared.output[0])
            file.write(given.tobytes())
        shared.fetch(result)
    finally:
        shared.close()
    np.testing.assert_array_equal(result, given)


def test_buffers_that_alias_in_the_parent_alias_in_the_ranks() -> None:
    whole = np.arange(40, dtype=np.int32)
    for given, result, spans in (
        (whole[10:20], whole, ((40, 40), (0, 160))),
        (whole, whole[30:], ((0, 160), (120, 40))),
        (whole, whole, ((0, 160), (0, 160))),
    ):
        shared = _Shared(given, result)
        try:
            assert (shared.input, shared.output) == spans
            assert seen(shared, (0, 160)) == whole.tobytes()
        finally:
            shared.close()


def test_a_rank_without_a_buffer_has_none() -> None:
    data = np.arange(4, dtype=np.int8)
    for given, result, spans in (
        (None, None, (None, None)),
        (data, None, ((0, 4), None)),
        (None, data, (None, (0, 4))),
        (np.zeros(0), data, (None, (0, 4))),
    ):
        shared = _Shared(given, result)
        try:
            assert (shared.input, shared.output) == spans
            shared.fetch(result)
        finally:
            shared.close()
    np.testing.assert_array_equal(data, np.arange(4))
