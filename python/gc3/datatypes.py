"""The data types, reductions and protocols of the runtime, by name, and their NumPy counterparts."""

from __future__ import annotations

from typing import Any, TypeAlias, cast

import ml_dtypes
import numpy as np
import numpy.typing as npt

from gc3 import errors

Array: TypeAlias = npt.NDArray[Any]
DType: TypeAlias = "np.dtype[Any]"

DTYPES: dict[str, DType] = {
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float32": np.dtype(np.float32),
    "float64": np.dtype(np.float64),
    "int8": np.dtype(np.int8),
    "uint8": np.dtype(np.uint8),
    "int32": np.dtype(np.int32),
    "int64": np.dtype(np.int64),
    "uint64": np.dtype(np.uint64),
    "float8_e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn),
    "float8_e5m2": np.dtype(ml_dtypes.float8_e5m2),
}
OPS = ("sum", "prod", "min", "max", "avg")
PROTOCOLS = ("Simple", "LL", "LL128")

_NAMES = {dtype: name for name, dtype in DTYPES.items()}


def dtype(spec: npt.DTypeLike | str) -> DType:
    """Returns the NumPy type that `spec` names, one of `DTYPES`.

    >>> dtype("bfloat16").itemsize
    2
    """
    if isinstance(spec, str) and spec in DTYPES:
        return DTYPES[spec]
    try:
        found = np.dtype(spec)
    except TypeError:
        found = None
    if found is None or found not in _NAMES:
        raise errors.error("BadDataType", f"'{found or spec}'; known are {', '.join(DTYPES)}")
    return found


def name(spec: npt.DTypeLike | str) -> str:
    """Returns the name the runtime knows a type by.

    >>> name(np.float32)
    'float32'
    """
    known = _NAMES.get(spec) if isinstance(spec, np.dtype) else None
    return known or _NAMES[dtype(spec)]


def op(spec: str) -> str:
    """Returns `spec` if it is one of `OPS`."""
    if spec not in OPS:
        raise errors.error("BadReduceOp", f"'{spec}'; known are {', '.join(OPS)}")
    return spec


def as_bytes(array: Array) -> Array:
    """Returns the memory of a contiguous array, of any shape, as bytes."""
    return reinterpret(np.ravel(array), np.uint8)


def reinterpret(array: Array, dtype: npt.DTypeLike) -> Array:
    """Returns the same memory seen as elements of another type; `array` is contiguous, with one dimension.

    >>> reinterpret(np.array([1, 0, 0, 0], np.uint8), np.int32).tolist()
    [1]
    """
    return cast("Array", cast("Any", array).view(dtype))
