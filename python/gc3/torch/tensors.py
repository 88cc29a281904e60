"""Tensors of PyTorch as arrays of NumPy, which share their memory."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import torch

from gc3 import datatypes, errors
from gc3.torch.work import as_torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gc3.comm import Communicator
    from gc3.datatypes import Array

# Types that NumPy has only with ml_dtypes: an integer type of the same size, as which PyTorch shares them.
_SHARED_AS = {
    getattr(torch, name): (getattr(torch, f"int{8 * dtype.itemsize}"), dtype)
    for name, dtype in datatypes.DTYPES.items()
    if name in datatypes.EXTENSIONS and hasattr(torch, name)
}
# What can be reduced; other types can only be moved. Both backends read this, with the engine's names.
TYPES = {getattr(torch, name): name for name in datatypes.DTYPES if hasattr(torch, name)}
_TORCH_OPS = {
    op: getattr(torch.distributed.ReduceOp, {"prod": "PRODUCT"}.get(op, op.upper()), None) for op in datatypes.OPS
}
OPS = {there: op for op, there in _TORCH_OPS.items() if there is not None}


def operation(op: Any, tensors: Sequence[torch.Tensor]) -> datatypes.Op:
    """Returns the reduction of a call's options, for tensors of one type.

    Raises:
        torch.distributed.DistBackendError: It is not supported, or the type cannot be reduced.
    """
    kind = op.op
    for tensor in tensors:
        if tensor.dtype not in TYPES:
            wrong = f"{tensor.dtype} in a reduction; expected one of {', '.join(datatypes.DTYPES)}"
            raise as_torch(errors.error("BadDataType", wrong))
    found = OPS.get(kind)
    if found is not None:
        return found
    if kind == torch.distributed.ReduceOp.PREMUL_SUM:
        return datatypes.PreMulSum(float(op.factor))
    raise as_torch(errors.error("BadReduceOp", f"{kind}; expected one of {', '.join(OPS.values())}"))


def as_nccl(op: datatypes.Op, ranks: int, *arrays: Array) -> tuple[datatypes.Op, list[Array]]:
    """Returns a reduction, and its arrays, so that it averages as NCCL does.

    NCCL multiplies floating-point numbers before it adds them, since the sum of large ones may overflow; of complex
    ones the parts. Of integers it divides the sum, as "avg" does.
    """
    dtypes = {a.dtype for a in arrays}  # if they differ, the call is refused
    kind = datatypes.kind(arrays[0].dtype) if op == "avg" and len(dtypes) == 1 else ""
    if kind not in ("float", "complex"):
        return op, list(arrays)
    if np.asarray(1 / ranks).astype(arrays[0].dtype) == 0:  # a float8_e4m3fn of 1,024 ranks: the sum is divided
        return op, list(arrays)
    if kind == "complex":
        arrays = tuple(a.view(f"f{a.itemsize // 2}") for a in arrays)
    return datatypes.PreMulSum(1 / ranks), list(arrays)


def contiguous(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a tensor whose memory can be shared: `tensor` itself if its memory is contiguous, else a copy.

    Raises:
        torch.distributed.DistBackendError: The tensor is not on the CPU, or not of strided layout.
    """
    # The usual tensor is taken as it is, after cheap checks: a small call takes some microseconds in all.
    if tensor.is_cpu and tensor.layout is torch.strided:
        if tensor.is_contiguous() and not (tensor.requires_grad or tensor.is_neg()):
            return tensor
        return tensor.detach().contiguous().resolve_neg()  # PyTorch resolves conjugates itself
    if not tensor.is_cpu:
        wrong = f'a tensor on {tensor.device}; the backend gc3 serves the CPU: use "cpu:gc3,cuda:nccl"'
    else:
        wrong = f"a tensor of layout {tensor.layout}; only all_reduce takes sparse tensors"
    raise as_torch(errors.error("BadBuffer", wrong))


def empty(comm: Communicator, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Returns a tensor of zeros in memory that all ranks can reach."""
    memory = comm.empty(math.prod(shape) * dtype.itemsize, "uint8")
    return torch.from_numpy(memory).view(dtype).view(list(shape))


@functools.cache
def _bytes_of(dtype: torch.dtype) -> datatypes.DType:
    """Returns a type of NumPy for elements that are only moved: that of ml_dtypes, or bytes with the type's name."""
    name = str(dtype).removeprefix("torch.")
    return np.dtype(getattr(ml_dtypes, name, [(name, f"V{dtype.itemsize}")]))


def array(tensor: torch.Tensor) -> Array:
    """Returns the memory of a tensor that `contiguous` has returned, with one axis at least."""
    shared_as = _SHARED_AS.get(tensor.dtype)
    if shared_as is not None:
        found = tensor.view(shared_as[0]).numpy().view(shared_as[1])
    else:
        try:
            found = tensor.numpy()
        except TypeError:  # a type that NumPy does not have
            found = tensor.reshape(*tensor.shape, 1).view(torch.uint8).numpy().view(_bytes_of(tensor.dtype))[..., 0]
    return found.reshape(1) if found.ndim == 0 else found


def flat(tensor: torch.Tensor) -> Array:
    """Returns the memory of a tensor that `contiguous` has returned, with one axis."""
    found = array(tensor)
    return found if found.ndim == 1 else found.reshape(-1)


class Target:
    """Tensors that a call writes, each through a contiguous copy where its own memory is not contiguous."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        """Holds `tensors` until the call is done.

        Raises:
            torch.distributed.DistBackendError: As `contiguous`; or elements of a tensor share memory.
        """
        self.tensors = list(tensors)
        for tensor in self.tensors:  # before a copy, which may be far larger than the memory of the tensor
            if tensor.layout is torch.strided and not tensor.is_contiguous() and _overlaps(tensor):
                wrong = "a tensor whose elements share memory, as those of expand() do, cannot be written: clone() it"
                raise as_torch(errors.error("BadBuffer", wrong))
        self.memory = [contiguous(tensor) for tensor in self.tensors]

    def finish(self) -> None:
        """Copies the results of the call to the tensors."""
        for tensor, memory in zip(self.tensors, self.memory, strict=True):
            if memory is not tensor and memory.data_ptr() != tensor.data_ptr():
                tensor.detach().copy_(memory)


def _overlaps(tensor: torch.Tensor) -> bool:
    """Whether several elements have one place in memory."""
    axes = sorted((stride, size) for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1)
    if not axes or tensor.numel() == 0:
        return False
    if axes[0][0] == 0 or tensor.numel() > _reach(axes) + 1:  # as of expand(); more elements than places
        return True
    # Else two elements have one place if their distances along the axes are not all 0, and come to 0 in memory.
    return any(
        _comes_to(stride * distance, axes[:i])
        for i, (stride, size) in enumerate(axes)
        for distance in range(1, min(size - 1, _reach(axes[:i]) // stride) + 1)
    )


def _reach(axes: Sequence[tuple[int, int]]) -> int:
    return sum(stride * (size - 1) for stride, size in axes)


def _comes_to(offset: int, axes: Sequence[tuple[int, int]]) -> bool:
    """Whether distances along the axes, of which the last has the largest stride, can come to an offset."""
    if not axes:
        return offset == 0
    (stride, size), rest = axes[-1], axes[:-1]
    reach = _reach(rest)
    first, last = max(1 - size, -((reach - offset) // stride)), min(size - 1, (offset + reach) // stride)
    return any(_comes_to(offset - stride * distance, rest) for distance in range(first, last + 1))
