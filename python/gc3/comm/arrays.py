"""From what a caller passes to the arrays a communicator works on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from gc3 import datatypes, errors

if TYPE_CHECKING:
    from gc3.datatypes import Array


def source(x: Any) -> Array:
    """Returns `x` as a contiguous array: itself if it is one, a copy where the memory has gaps.

    Takes NumPy arrays, anything with the buffer protocol or DLPack on the CPU, numbers and lists.
    """
    if x is None:
        raise errors.error("BadBuffer", "None is no input of this rank")
    array = _shared(x)
    if array is None:
        try:
            array = np.asarray(x)
        except ValueError as problem:
            raise errors.error("BadBuffer", f"a {type(x).__name__} that is no array: {problem}") from problem
    datatypes.name(array.dtype)  # refuses what the runtime does not know
    return array if array.flags.c_contiguous else _made(np.ascontiguousarray, array)


def target(out: Any, shape: tuple[int, ...] | None, like: Array | None) -> Array:
    """Returns the memory of `out` as an array to write to, or a new one of `shape` and the type of `like`."""
    if out is None:
        if shape is None or like is None:
            raise errors.error("BadBuffer", "this rank has no input to make an output from: give out=")
        return _made(np.empty, shape, like.dtype)
    array = _shared(out)
    if array is None:
        raise errors.error("BadBuffer", f"out is a {type(out).__name__}, whose memory cannot be written to")
    if not array.flags.writeable:
        raise errors.error("BadBuffer", "out is read-only; of a tensor, pass its NumPy view")
    if not array.flags.c_contiguous:
        raise errors.error("BadBuffer", "out is not contiguous")
    if like is not None and array.dtype != like.dtype:
        raise errors.error("BadBuffer", f"out is of {array.dtype}, the input of {like.dtype}")
    datatypes.name(array.dtype)
    return array


def check_elements(array: Array, elements: int, what: str) -> None:
    """Makes sure that an array has so many elements."""
    if array.size != elements:
        raise errors.error("BadBuffer", f"{what} has {array.size} elements, not {elements}")


def split_first(x: Array, parts: int, what: str) -> tuple[int, ...]:
    """Returns the shape of one of `parts` equal parts of `x` along its first axis."""
    if x.ndim == 0 or x.shape[0] % parts != 0:
        raise errors.error("BadBuffer", f"the first axis of {what}, of {x.shape}, does not divide by {parts} ranks")
    return (x.shape[0] // parts, *x.shape[1:])


def join_first(x: Array, parts: int) -> tuple[int, ...]:
    """Returns the shape of `parts` arrays like `x` joined along their first axis."""
    return (parts * x.shape[0], *x.shape[1:]) if x.ndim else (parts,)


def offset(inner: Array, outer: Array) -> int | None:
    """Returns at which byte of `outer` `inner` begins; None if they share no memory.

    >>> a = np.zeros(4, np.int32)
    >>> offset(a[2:], a), offset(a, a), offset(np.zeros(4), a)
    (8, 0, None)
    """
    if inner is outer:
        return 0
    if not np.may_share_memory(inner, outer):
        return None
    return inner.ctypes.data - outer.ctypes.data


def lies_in(inner: Array, outer: Array, place: int) -> bool:
    """Whether a call is in place: `inner` lies at byte `place` of `outer`; anything but that or apart is an error."""
    found = offset(inner, outer)
    if found is None or inner.size == 0:
        return False
    if found != place:
        raise errors.error("BadBuffer", f"input and output overlap; in place, one lies at byte {place} of the other")
    return True


def as_bytes(array: Array | None) -> Array | None:
    """Returns the memory of a contiguous array as bytes; nothing where it is empty."""
    if array is None or array.size == 0:
        return None
    return datatypes.reinterpret(np.ravel(array), np.uint8)


def _made(make: Callable[..., Array], *arguments: Any) -> Array:
    try:
        return make(*arguments)
    except (MemoryError, ValueError) as problem:  # NumPy's own limit is a ValueError
        raise errors.error("OutOfMemory", str(problem)) from problem


def _shared(x: Any) -> Array | None:
    """The memory of `x` as an array, without a copy; None if it has none to share."""
    if isinstance(x, np.ndarray):
        return cast("Array", x)
    try:
        return np.asarray(memoryview(x))
    except TypeError:
        pass
    if hasattr(x, "__dlpack__"):
        try:
            return np.from_dlpack(x)
        except (BufferError, RuntimeError, TypeError) as problem:
            raise errors.error("BadBuffer", f"a {type(x).__name__} that NumPy cannot share: {problem}") from problem
    return None
