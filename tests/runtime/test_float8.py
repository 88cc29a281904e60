"""The 8-bit floats: all pairs of numbers are compared with ml_dtypes."""

from __future__ import annotations

import numpy as np
import pytest

import gc3
from gc3 import datatypes
from gc3.runtime.checking import FUNCTIONS


def pairs(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    every = datatypes.reinterpret(np.arange(256, dtype=np.uint8), datatypes.dtype(dtype))
    return np.repeat(every, 256), np.tile(every, 256)


def reference(op: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        result = FUNCTIONS[op](a.astype(np.float32), b.astype(np.float32)).astype(a.dtype)
        if op == "avg":
            result = (result.astype(np.float32) / np.float32(2)).astype(a.dtype)
    return result.astype(np.float32)


@pytest.mark.parametrize("dtype", [name for name in datatypes.EXTENSIONS if datatypes.DTYPES[name].itemsize == 1])
@pytest.mark.parametrize("op", [op for op in datatypes.OPS if datatypes.takes(op, "float8_e5m2")])
def test_all_pairs(dtype: str, op: str) -> None:
    program = gc3.compile(gc3.algorithms.load("allpairs_allreduce"), R=2)
    a, b = pairs(dtype)
    for output in program.run([a, b], op=op):
        assert output is not None
        np.testing.assert_array_equal(output.astype(np.float32), reference(op, a, b))
