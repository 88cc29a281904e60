"""Calls on tensors that present themselves by DLPack."""

from functools import partial

import numpy as np
from here import RANK, error_of

import gc3
from fake_driver import DlpackArray
from gc3 import datatypes
from gc3.cuda.arrays import DLPACK_TYPES

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
