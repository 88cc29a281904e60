"""Arrays in the memory of CUDA devices: those of PyTorch and CuPy, and all that describe their memory.

This module imports no array library: an array's own library makes new arrays and gives the current stream.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np

from gc3 import _core, datatypes, errors
from gc3.cuda.driver import runtime

if TYPE_CHECKING:
    from gc3.datatypes import DType

_ELSEWHERE = {np.ndarray, str, int, float, list, type(None)}  # known without asking
_CUDA = 2  # DLPack's number of the kind of device
_LEAST_VERSION = 2  # of __cuda_array_interface__
_NO_SYNCHRONIZATION = -1  # DLPack: the caller orders its work itself
# DLPack's numbers of kinds of types; those that NumPy does not have are kinds of their own.
_DLPACK_KINDS = {
    **{"signed": 0, "unsigned": 1, "float": 2, "complex": 5, "boolean": 6},
    **{"bfloat16": 4, "float8_e4m3fn": 10, "float8_e5m2": 12},
}
DLPACK_TYPES = {  # (kind, bits) -> name
    (_DLPACK_KINDS[t.name if t.name in datatypes.EXTENSIONS else t.kind], 8 * t.bytes): t.name
    for t in _core.data_types()
}


@dataclass(frozen=True, slots=True)
class DeviceArray:
    """A contiguous array on a device, with the attributes of a NumPy array that communicators use.

    Attributes:
        array: The array of its library.
        address: The address of its memory.
        shape: Its shape.
        dtype: Its type.
        device: The number of its device.
        stream: The current stream of its library.
        writeable: Whether its library lets others write to it.
    """

    array: Any
    address: int
    shape: tuple[int, ...]
    dtype: DType
    device: int
    stream: int
    writeable: bool = True

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return self.size * self.dtype.itemsize

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    def new(self, shape: tuple[int, ...]) -> DeviceArray:
        """Returns a new array of the same library, type and device."""
        if hasattr(self.array, "new_empty"):
            made = self.array.new_empty(shape)
        elif hasattr(self.array, "__array_namespace__"):
            made = self.array.__array_namespace__().empty(shape, dtype=self.array.dtype, device=self.array.device)
        elif hasattr(self.array, "__array_function__"):  # CuPy, whose devices are contexts
            with self.array.device:
                made = np.empty_like(self.array, shape=shape)
        else:
            made = None
        found = None if made is None else find(made)
        if found is None:
            raise errors.error("BadBuffer", f"a {type(self.array).__name__} makes no array like itself: give out=")
        return found


def address(array: DeviceArray | None) -> int:
    """Returns the address of an array's memory for the runtime; 0: there is none."""
    return 0 if array is None or array.size == 0 else array.address


def is_on_device(x: Any) -> bool:
    """Whether `x` is an array on a CUDA device.

    >>> is_on_device(3.0)
    False
    """
    if type(x) in _ELSEWHERE:
        return False
    if hasattr(x, "__dlpack_device__"):
        return int(x.__dlpack_device__()[0]) == _CUDA
    return hasattr(x, "__cuda_array_interface__")


def find(x: Any) -> DeviceArray | None:
    """Returns a description of `x` if it is on a CUDA device, else None.

    Raises:
        gc3.UserError: It is not contiguous, or its type is not supported.
    """
    if not is_on_device(x):
        return None
    return _from_dlpack(x) if hasattr(x, "__dlpack__") else _from_interface(x)


def refuse_negated(x: Any) -> None:
    """Raises for a view of PyTorch that is negated when it is read: DLPack gives its memory, and does not tell."""
    if hasattr(x, "is_neg") and x.is_neg():
        raise errors.error("BadBuffer", f"a {type(x).__name__} that is a negated view of another: pass .resolve_neg()")


def _from_dlpack(x: Any) -> DeviceArray:
    refuse_negated(x)
    source = x.detach() if getattr(x, "requires_grad", False) else x
    try:
        capsule = source.__dlpack__(stream=_NO_SYNCHRONIZATION)
    except (BufferError, RuntimeError, TypeError, ValueError) as problem:
        raise errors.error("BadBuffer", f"a {type(x).__name__} that cannot be shared: {problem}") from problem
    begin, shape, kind, bits, device, contiguous = _core.describe_dlpack(capsule)
    if (kind, bits) not in DLPACK_TYPES:
        raise errors.error(
            "BadDataType", f"DLPack's type ({kind}, {bits} bits); expected one of {', '.join(datatypes.DTYPES)}"
        )
    _check_contiguous(x, contiguous=contiguous)
    return DeviceArray(x, begin, shape, datatypes.dtype(DLPACK_TYPES[kind, bits]), device, _stream(x, device))


def _from_interface(x: Any) -> DeviceArray:
    try:
        about: dict[str, Any] = x.__cuda_array_interface__
        begin, read_only = about["data"]
        begin, shape = index(begin or 0), tuple(map(index, about["shape"]))
        strides = None if about.get("strides") is None else tuple(map(index, about["strides"]))
        given = index(about.get("stream") or 0)
        typestr = str(about["typestr"])
        if index(about["version"]) < _LEAST_VERSION:
            raise ValueError(f"version {about['version']}")
    except (KeyError, TypeError, ValueError, AttributeError) as problem:
        raise _unusable(x, f"it lacks an entry of version 3, or has another form ({problem!r})") from None
    if about.get("mask") is not None:
        raise _unusable(x, "a mask would be lost; pass the data and the mask apart")
    if min(begin, given, *shape, 0) < 0 or begin >> 64 or (strides is not None and len(strides) != len(shape)):
        raise _unusable(x, f"address {begin}, shape {shape}, strides {strides} and stream {given} are of no array")
    if begin == 0 and math.prod(shape):
        raise _unusable(x, f"an array of {math.prod(shape)} elements has no address")
    dtype = datatypes.dtype(typestr)
    dense, stride = True, dtype.itemsize
    for length, step in zip(reversed(shape), reversed(strides or ()), strict=False):
        dense = dense and step in (stride, step if length == 1 else stride)
        stride *= length
    _check_contiguous(x, contiguous=dense or stride == 0)
    device = runtime().device_of(begin) if begin else 0
    return DeviceArray(x, begin, shape, dtype, device, _stream(x, device) or given, writeable=not read_only)


def _unusable(x: Any, why: str) -> errors.Gc3Error:
    return errors.error("BadBuffer", f"the __cuda_array_interface__ of a {type(x).__name__}: {why}")


def _check_contiguous(x: Any, *, contiguous: bool) -> None:
    if not contiguous:
        raise errors.error("BadBuffer", f"a {type(x).__name__} on a device that is not contiguous")


def _stream(x: Any, device: int) -> int:
    """The current stream of the array's library; 0: the default one."""
    root = type(x).__module__.partition(".")[0]
    library = sys.modules.get(root)
    if root == "torch" and library is not None:
        return int(library.cuda.current_stream(device).cuda_stream)
    if root == "cupy" and library is not None:
        return int(library.cuda.get_current_stream().ptr)
    return 0
