"""The data types, reductions and protocols of the runtime, by name, and their NumPy counterparts."""

from __future__ import annotations

import functools
import sys
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import ml_dtypes
import numpy as np
import numpy.typing as npt

from gc3 import _core, errors

Array: TypeAlias = npt.NDArray[Any]
DType: TypeAlias = "np.dtype[Any]"

# NumPy has these types under the same names, except those of ml_dtypes.
DTYPES: dict[str, DType] = {t.name: np.dtype(getattr(ml_dtypes, t.name, t.name)) for t in _core.data_types()}
EXTENSIONS = tuple(name for name in DTYPES if hasattr(ml_dtypes, name))  # to NumPy's own types
# The operations that need only a name; premulsum also needs a factor.
OPS = tuple(op.name for op in _core.reduce_ops() if op.name != "premulsum")
OBJECT: DType = np.dtype([("gc3 object", "u1")])  # of the bytes of a pickled object that is sent
PROTOCOLS = tuple(_core.protocols())
FORMATS = PROTOCOLS[: _core.FORMATS]  # of messages; what is pulled or copied has the first

_KINDS = {t.name: t for t in _core.data_types()}
_REDUCTIONS = {op.name: op for op in _core.reduce_ops()}
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
    except (TypeError, ValueError, SyntaxError):  # NumPy reads "(2," as Python
        found = None
    if found is None or found not in _NAMES:
        raise errors.error("BadDataType", f"'{found or spec}'; expected one of {', '.join(DTYPES)}")
    return found


def name(spec: npt.DTypeLike | str) -> str:
    """Returns the runtime's name of a type.

    >>> name(np.float32)
    'float32'
    """
    known = _NAMES.get(spec) if isinstance(spec, np.dtype) else None
    return known or _NAMES[dtype(spec)]


def refuse_mask(array: Any) -> None:
    """Raises for a masked array: the runtime moves data only, so the mask would be lost."""
    masked = sys.modules.get("numpy.ma")  # loaded where masked arrays exist
    if masked is not None and isinstance(array, masked.MaskedArray):
        raise errors.error("BadBuffer", "a masked array, whose mask would be lost; pass its .data or .filled(value)")


def kind(spec: npt.DTypeLike | str) -> str:
    """Returns the kind of numbers of a type: "float", "signed", "unsigned", "boolean" or "complex".

    >>> kind("bool")
    'boolean'
    """
    return _KINDS[name(spec)].kind


def movable(spec: npt.DTypeLike | str) -> DType:
    """Returns the NumPy type that `spec` names: one of `DTYPES`, or any other whose values have a fixed size.

    Raises:
        gc3.UserError: It is not a type, or its values are references to Python objects or have no fixed size.

    >>> movable("datetime64[s]").itemsize
    8
    """
    if isinstance(spec, str) and spec in DTYPES:
        return DTYPES[spec]
    try:
        found = np.dtype(spec)
    except (TypeError, ValueError, SyntaxError):  # NumPy reads "(2," as Python
        return dtype(spec)
    if found.hasobject or found.itemsize == 0:
        raise errors.error("BadDataType", f"'{found}' has no values of a fixed size that could be moved")
    return found


def moved(count: int, dtype: DType) -> tuple[int, str]:
    """Returns the number and type of runtime elements that stand for `count` elements of a type that is only moved.

    >>> moved(3, np.dtype("datetime64[s]")), moved(3, np.dtype("int32"))
    ((24, 'uint8'), (3, 'int32'))
    """
    known = _NAMES.get(dtype)
    return (count, known) if known else (count * dtype.itemsize, "uint8")


@functools.lru_cache
def identity(dtype: DType) -> str:
    """Returns a text that is the same for the same types on all ranks, whether the runtime has them or not.

    >>> identity(np.dtype([("a", "i4"), ("b", "M8[s]", 2)]))
    '(a int32 at 0, b datetime64[s](2,) at 4) of 20 bytes'
    """
    if dtype.subdtype is not None:
        return f"{identity(dtype.subdtype[0])}{dtype.subdtype[1]}"
    if dtype.names is None:
        return str(dtype)
    fields = cast("Any", dtype).fields
    parts = [f"{name} {identity(fields[name][0])} at {fields[name][1]}" for name in dtype.names]
    return f"({', '.join(parts)}) of {dtype.itemsize} bytes"


def element(spec: npt.DTypeLike) -> tuple[str, int, int]:
    """Returns as what an element is moved: name of a type, how many of them, a number if it is not the element's own.

    The numbers of types are negative; that of `OBJECT` is kObject of the core.

    >>> element(np.dtype("int32")), element(OBJECT)
    (('int32', 1, 0), ('uint8', 1, 31))
    """
    dtype = movable(spec)
    units, name = moved(1, dtype)
    if dtype in _NAMES:
        return name, units, 0
    return name, units, 31 if dtype == OBJECT else -1 - (zlib.crc32(identity(dtype).encode()) & 0x7FFFFFFF)


@dataclass(frozen=True, slots=True)
class PreMulSum:
    """The sum of the ranks' inputs, each multiplied by a factor of its rank before.

    Attributes:
        factor: A number of the type of the data; or one for each rank, which also serves ``Program.run``.

    >>> from gc3 import algorithms, compile
    >>> compile(algorithms.load("ring_allreduce"), R=2).run([[1.0], [2.0]], op=PreMulSum([10, 0.5]))[0]
    array([11.])
    """

    factor: complex | Sequence[complex]

    def elements(self, spec: npt.DTypeLike | str, size: int) -> Array:
        """Returns the factors of `size` ranks as elements of a type.

        Raises:
            gc3.UserError: They are no numbers of the type, or another number of them.
        """
        try:
            given = np.asarray(self.factor)
        except ValueError:
            given = np.asarray(None)
        if given.dtype.kind not in "biufc" or given.shape not in ((), (size,)):
            raise errors.error("BadReduceOp", f"{self}: a number is needed, or {size} of them, one for each rank")
        numbers = kind(spec)
        if given.dtype.kind == "c" and numbers != "complex":
            raise errors.error("BadReduceOp", f"{self}: a factor of {name(spec)} is not complex")
        with np.errstate(all="ignore"):
            made = given.astype(dtype(spec))
        if numbers in ("signed", "unsigned") and not np.array_equal(made, given):
            raise errors.error("BadReduceOp", f"{self}: a factor of {name(spec)} is one of its numbers")
        return np.ascontiguousarray(np.broadcast_to(made, (size,)))

    def times(self, array: Array) -> Array:
        """Returns the elements of an array, each multiplied by the one factor.

        Raises:
            gc3.UserError: As `elements`; or the type is not multiplied.
        """
        if not takes("premulsum", array.dtype):
            raise errors.error("BadReduceOp", f"premulsum of {name(array.dtype)}")
        return array * self.elements(array.dtype, 1)


Op: TypeAlias = "str | PreMulSum"


def op(spec: Op) -> str:
    """Returns the name of a reduction, one of `OPS` or "premulsum"."""
    if isinstance(spec, PreMulSum):
        return "premulsum"
    if not isinstance(spec, str) or spec not in OPS:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise errors.error("BadReduceOp", f"{spec!r}; expected one of {', '.join(OPS)}, or gc3.PreMulSum(factor)")
    return spec


def operation(spec: Op, dtype: npt.DTypeLike | str, size: int, rank: int | None = None) -> _core.Operation:
    """Returns what the runtime takes for a reduction: with the factors of all `size` ranks, or of one."""
    if not isinstance(spec, PreMulSum):
        return _core.Operation(op(spec))
    factors = spec.elements(dtype, size)
    return _core.Operation("premulsum", (factors if rank is None else factors[rank : rank + 1]).tobytes())


def takes(op: str, spec: npt.DTypeLike | str) -> bool:
    """Returns whether an operation of `OPS` accepts a type: min, for example, has no meaning for complex numbers.

    >>> takes("min", np.complex64), takes("bxor", np.int8)
    (False, True)
    """
    return _REDUCTIONS[op].takes(_KINDS[name(spec)])


def as_bytes(array: Array) -> Array:
    """Returns the memory of a contiguous array, of any shape, as bytes."""
    return reinterpret(np.ravel(array), np.uint8)


def reinterpret(array: Array, dtype: npt.DTypeLike) -> Array:
    """Returns the same memory as elements of another type; `array` is contiguous and has one dimension.

    >>> reinterpret(np.array([1, 0, 0, 0], np.uint8), np.int32).tolist()
    [1]
    """
    return cast("Array", cast("Any", array).view(dtype))
