"""Calls on tensors that present themselves by DLPack, and on arrays as CuPy has them."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np
from here import RANK, error_of

import gc3
from fake_arrays import DlpackArray, InterfaceArray
from gc3 import datatypes
from gc3.cuda.arrays import DLPACK_TYPES


class FunctionArray(InterfaceArray):
    """Has NumPy's functions instead of a namespace of its own, and a device that is a context."""

    device = nullcontext()

    def __array_function__(self, function: Any, _types: Any, _values: Any, named: dict[str, Any]) -> FunctionArray:
        assert function is np.empty_like
        return FunctionArray(np.zeros(named["shape"], self.memory.like.dtype))


with gc3.init() as comm:
    for kind in range(20):  # DLPack 1.2 has 18
        for size in (1, 2, 4, 8, 16):
            name = DLPACK_TYPES.get((kind, 8 * size))
            if name is None:
                wrong = error_of(partial(comm.all_reduce, DlpackArray(np.zeros(3, f"V{size}"), kind)))
                assert wrong.startswith(f"GC3-M002 unknown data type: DLPack's type ({kind}, {8 * size} bits)"), wrong
                continue
            x = DlpackArray(np.full((2, 3), RANK + 1).astype(datatypes.DTYPES[name]), kind)
            y = comm.all_reduce(x)
            comm.synchronize()
            assert isinstance(y, DlpackArray)
            assert y.memory.content.tolist() == [[1 if name == "bool" else 3] * 3] * 2
    of_two = DlpackArray(np.ones(3, "V8"), 2, lanes=2)  # as many bits as a float64 has
    assert "elements of 2 numbers (DLPack's lanes)" in error_of(lambda: comm.all_reduce(of_two))
    gathered = comm.all_gather(FunctionArray(np.full(3, RANK + 1, np.float32)))
    comm.synchronize()
    assert isinstance(gathered, FunctionArray)
    assert gathered.memory.content.tolist() == [1, 1, 1, 2, 2, 2]
