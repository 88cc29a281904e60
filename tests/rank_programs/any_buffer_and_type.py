"""Calls on all types, on other arrays than those of NumPy, and on invalid arguments."""

import array
import sys
import types

import numpy as np
from here import RANK

import gc3
from gc3.datatypes import DTYPES


class Foreign:
    """An array with DLPack."""

    def __init__(self, x: np.ndarray) -> None:
        self.x = x

    def __dlpack__(self, **how: object) -> object:
        return self.x.__dlpack__(**how)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.x.__dlpack_device__()


class Tensor:
    """The part of PyTorch's tensors that gc3 uses for types that NumPy does not have."""

    dtype = "torch.bfloat16"

    def __init__(self, x: np.ndarray) -> None:
        self.x = x

    def view(self, kind: np.dtype) -> np.ndarray:
        """Returns the same memory as another type."""
        return self.x.view(kind)

    def __dlpack__(self, **_: object) -> object:
        raise BufferError("Unsupported dtype in DLTensor")

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


with gc3.init() as comm:
    for dtype in DTYPES.values():
        assert (comm.all_reduce(np.full(33, RANK + 1, dtype)) == np.full(33, 3, dtype)).all()
    a = array.array("d", [RANK, 1.0])
    comm.all_reduce(a, out=a)
    assert list(a) == [1.0, 2.0]
    b = bytearray([RANK + 1] * 5)
    comm.broadcast(b, 1)
    assert b == bytearray([2] * 5)
    assert comm.all_reduce(Foreign(np.ones(3))).tolist() == [2.0] * 3
    sys.modules["torch"] = types.SimpleNamespace(Tensor=Tensor, int16=np.int16)
    brain = Tensor(np.full(5, RANK + 1, DTYPES["bfloat16"]))
    assert comm.all_reduce(brain).astype(int).tolist() == [3] * 5
    comm.all_reduce(brain, out=brain)
    assert brain.x.astype(int).tolist() == [3] * 5
    del sys.modules["torch"]
    gaps = np.arange(20.0)[::2]
    assert np.array_equal(comm.all_reduce(gaps), 2 * gaps)
    for bad, message in (
        (lambda: comm.all_reduce(np.zeros(3, "M8[s]")), "GC3-M002"),
        (lambda: comm.all_reduce(np.ones(3, "c8"), op="max"), "GC3-M003"),
        (lambda: comm.all_reduce(np.ones(3), op="mean"), "GC3-M003"),
        (lambda: comm.all_reduce(np.ones(3), out=np.ones(4)), "GC3-R001"),
        (lambda: comm.all_reduce(np.ones(3), out=np.ones(3, np.float32)), "GC3-R001"),
        (lambda: comm.all_reduce(np.ones(3), out=[1, 2, 3]), "GC3-R001"),
        (lambda: comm.all_reduce(gaps, out=np.ones(20)[::2]), "GC3-R001"),
        (lambda: comm.all_reduce(np.ones(3), out=np.broadcast_to(1.0, 3)), "GC3-R001"),
        (lambda: comm.reduce_scatter(np.ones(3)), "GC3-R001"),
        (lambda: comm.broadcast(np.ones(3), 2), "GC3-L007"),
    ):
        try:
            bad()
        except gc3.UserError as problem:
            assert problem.code == message, problem
        else:
            raise AssertionError(message)
    shifted = np.zeros(4)
    try:
        comm.all_reduce(shifted[:3], out=shifted[1:])
    except gc3.UserError as problem:
        assert "overlap" in str(problem)
    assert comm.all_reduce(1) == 2  # calls after mistakes work
