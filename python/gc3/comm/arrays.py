"""Conversion of a caller's arguments to the arrays that a communicator uses."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from gc3 import datatypes, errors
from gc3.cuda import arrays as device_arrays
from gc3.cuda.arrays import DeviceArray

if TYPE_CHECKING:
    from gc3.datatypes import Array


AnyArray: TypeAlias = "Array | DeviceArray"

_SMALL_FLOATS = tuple(f"torch.{name}" for name in datatypes.EXTENSIONS)


def source(x: Any) -> AnyArray:
    """Returns `x` as a contiguous array: itself if it is one, a copy if its memory is not contiguous.

    Takes NumPy arrays, anything with the buffer protocol or DLPack, on the CPU or on a CUDA device, numbers and lists.
    """
    on_device = device_arrays.find(x)
    if on_device is not None:
        return on_device
    if x is None:
        raise errors.error("BadBuffer", "expected an array as this rank's input, but got None")
    array = _shared(x)
    if array is None:
        try:
            array = np.asarray(x)
        except ValueError as problem:
            raise errors.error("BadBuffer", f"a {type(x).__name__} that is no array: {problem}") from problem
    datatypes.movable(array.dtype)  # refuses types whose elements have no fixed size
    return array if array.flags.c_contiguous else _made(np.ascontiguousarray, array)


def target(out: Any) -> AnyArray:
    """Returns the memory of `out` as an array to write to."""
    on_device = device_arrays.find(out)
    if on_device is not None:
        if not on_device.writeable:
            raise errors.error("BadBuffer", "out is read-only")
        return on_device
    array = _shared(out)
    if array is None:
        raise errors.error("BadBuffer", f"out is a {type(out).__name__}, whose memory cannot be written to")
    if not array.flags.writeable:
        raise errors.error("BadBuffer", "out is read-only; of a tensor, pass its NumPy view")
    if not array.flags.c_contiguous:
        raise errors.error("BadBuffer", "out is not contiguous")
    datatypes.movable(array.dtype)  # refuses types whose elements have no fixed size
    return array


def check_alike(given: AnyArray | None, result: AnyArray | None) -> None:
    """Raises an error if an output has another type than its input, or is not on a device as well."""
    if given is None or result is None:
        return
    if isinstance(given, DeviceArray) != isinstance(result, DeviceArray):
        raise _apart()
    if result.dtype != given.dtype:
        raise errors.error("BadBuffer", f"out is of {result.dtype}, the input of {given.dtype}")


def result(array: AnyArray) -> Any:
    """Returns the object for the caller, from an array that a call has written."""
    return array.array if isinstance(array, DeviceArray) else array


def on_device(array: AnyArray | None) -> DeviceArray | None:
    """Returns `array`, which must be on a device, because the call has another array there."""
    if array is None or isinstance(array, DeviceArray):
        return array
    raise _apart()


def on_host(array: AnyArray | None) -> Array | None:
    """Returns `array`, which must be on the host, because the call has another array there."""
    if isinstance(array, DeviceArray):
        raise _apart()
    return array


def offset(inner: AnyArray, outer: AnyArray) -> int | None:
    """Returns the byte of `outer` at which `inner` begins; None if they share no memory.

    >>> a = np.zeros(4, np.int32)
    >>> offset(a[2:], a), offset(a, a), offset(np.zeros(4), a)
    (8, 0, None)
    """
    if inner is outer:
        return 0
    if isinstance(inner, DeviceArray) or isinstance(outer, DeviceArray):
        if not isinstance(inner, DeviceArray) or not isinstance(outer, DeviceArray):
            return None
        apart = inner.address + inner.nbytes <= outer.address or outer.address + outer.nbytes <= inner.address
        return None if apart else inner.address - outer.address
    if not np.may_share_memory(inner, outer):
        return None
    return inner.ctypes.data - outer.ctypes.data


def _apart() -> errors.Gc3Error:
    return errors.error("BadBuffer", "the input is on a device and out is not, or the reverse")


def _made(make: Callable[..., Array], *arguments: Any) -> Array:
    try:
        return make(*arguments)
    except (MemoryError, ValueError) as problem:  # NumPy's own limit is a ValueError
        raise errors.error("OutOfMemory", str(problem)) from problem


def _is_small_float(x: Any) -> bool:
    """Whether `x` is a tensor of PyTorch with a type that NumPy does not have without ml_dtypes."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor) and str(x.dtype) in _SMALL_FLOATS


def _small_float(x: Any) -> Array:
    """The memory of such a tensor, which is shared as integers and viewed as its type."""
    kind = datatypes.dtype(str(x.dtype).removeprefix("torch."))
    numbers: Any = np.from_dlpack(x.view(getattr(sys.modules["torch"], f"int{8 * kind.itemsize}")))
    return numbers.view(kind)


def _shared(x: Any) -> Array | None:
    """The memory of `x` as an array, without a copy; None if it has none to share."""
    if isinstance(x, np.ndarray):
        datatypes.refuse_mask(cast("Array", x))
        return cast("Array", x)
    try:
        return np.asarray(memoryview(x))
    except TypeError:
        pass
    if hasattr(x, "__dlpack__"):
        device_arrays.refuse_negated(x)
        try:
            return np.from_dlpack(x)
        except (BufferError, RuntimeError, TypeError) as problem:
            if _is_small_float(x):
                return _small_float(x)
            raise errors.error("BadBuffer", f"a {type(x).__name__} that NumPy cannot share: {problem}") from problem
    return None
