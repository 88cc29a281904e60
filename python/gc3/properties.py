"""Properties of compute operations: how they are declared, and a test of them on data.

An operation has the operands of each property as a number, operand k by bit k, in the order of `NAMES`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from gc3 import _core, errors

if TYPE_CHECKING:
    from gc3.datatypes import Array

# The name of a property of all operands, or by name the operands that have it.
Declared: TypeAlias = "str | Mapping[str, int | Sequence[int] | str]"

NAMES: tuple[str, ...] = tuple(_core.properties())
NONE = (0,) * len(NAMES)

_ALL = (1 << 32) - 1
_MOST_OPERANDS = 32


def bits(name: str, given: Any) -> tuple[int, ...]:
    """Returns the operands of each property of operation `name`, as `gc3.op` takes them.

    Raises:
        gc3.UserError: There is no such property or operand.
    """
    found = dict.fromkeys(NAMES, 0)
    whose, known = f"op('{errors.shown(name)}')", ", ".join(found)
    by_name: Any = {given: "all"} if isinstance(given, str) else {} if given is None else given
    if not isinstance(by_name, Mapping):
        raise errors.error("BadArgument", f"{whose}: properties={given!r}; expected one of {known}, or a mapping")
    for which, operands in cast("Mapping[Any, Any]", by_name).items():
        if which not in found:
            raise errors.error("BadArgument", f"{whose}: there is no property {which!r}; expected one of {known}")
        if isinstance(operands, str) and operands == "all":
            found[which] = _ALL
            continue
        numbers = cast("Sequence[Any]", operands if isinstance(operands, (tuple, list)) else [operands])
        for number in numbers:
            found[which] |= 1 << errors.whole(number, f"{whose}: an operand of '{which}'", 0, _MOST_OPERANDS - 1)
    return tuple(found.values())


def describe(properties: Sequence[int]) -> str:
    """Returns properties as messages say them; empty: none.

    >>> describe((1, 3, 0))
    'linear in operand 0 and rowwise in operands 0, 1'
    """
    said: list[str] = []
    for name, operands in zip(NAMES, properties, strict=True):
        numbers = _numbers(operands, _MOST_OPERANDS)
        if operands == _ALL:
            said.append(name)
        elif numbers:
            said.append(f"{name} in operand{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}")
    return " and ".join(said)


def beyond(properties: Sequence[int], operands: int) -> bool:
    """Returns whether more operands than there are have a property."""
    return any(own != _ALL and own >> operands for own in properties)


def check(
    function: Callable[..., object], properties: Sequence[int], reads: Sequence[Array], results: Sequence[Array]
) -> None:
    """Tests what is declared of a function on operands like `reads`, with random ones beside them.

    Raises:
        ValueError: The data refute it; the text says what.
    """
    test = _Test(function, reads, results)
    linear, rowwise, elementwise = (_numbers(own, len(reads)) for own in properties)
    for k in linear:
        test.sum_of(k)
    if rowwise:
        test.cut(rowwise, 0, "rowwise")
    if elementwise:
        for axis in range(max(results[0].ndim, 1)):
            test.cut(elementwise, axis, "elementwise")


class _Test:
    """A function, and operands for it."""

    def __init__(self, function: Callable[..., object], reads: Sequence[Array], results: Sequence[Array]) -> None:
        """Takes operands, and results of the right shapes."""
        self._function = function
        self._reads = list(reads)
        self._shapes = [result.shape for result in results]
        self._types = [result.dtype for result in results]
        self._random = np.random.default_rng(len(reads))

    def sum_of(self, k: int) -> None:
        """Compares what it makes of a sum with the sum of what it makes of the terms, and tries zeros."""
        given = self._reads[k]
        other = self._like(given)
        made = [self._made(k, operand) for operand in (given, other, given + other, np.zeros_like(given))]
        for r, (first, second, both, nothing) in enumerate(zip(*made, strict=True)):
            told = f"it is declared linear in operand {k}, but makes other values"
            _compare(f"{told} of zeros than zeros", r, nothing, np.zeros_like(nothing), first)
            _compare(f"{told} of a sum than the sum of what it makes of the terms", r, both, first + second, first)

    def cut(self, operands: Sequence[int], axis: int, name: str) -> None:
        """Compares what it makes of a whole with what it makes of two parts of it."""
        if any(self._reads[k].ndim <= axis for k in operands) or any(len(shape) <= axis for shape in self._shapes):
            return
        told = f"it is declared {name} in operands {', '.join(map(str, operands))}, but"
        sizes = {self._reads[k].shape[axis] for k in operands} | {shape[axis] for shape in self._shapes}
        if len(sizes) != 1:
            raise ValueError(f"{told} these and its results have {sorted(sizes)} elements in dimension {axis}")
        size = sizes.pop()
        if size == 0:
            return
        whole = dict(enumerate(self._reads))
        for k in operands if size == 1 else ():  # a part for the whole
            whole[k] = np.concatenate([whole[k], self._like(whole[k])], axis)
        size = max(size, 2)
        middle = size // 2
        made: list[tuple[Array, ...]] = []
        for low, high in ((0, size), (0, middle), (middle, size)):
            part = {k: np.take(whole[k], range(low, high), axis) for k in operands}
            shapes = [(*shape[:axis], high - low, *shape[axis + 1 :]) for shape in self._shapes]
            try:
                made.append(self._apply([part.get(k, whole[k]) for k in whole], shapes))
            except Exception as problem:
                raise ValueError(
                    f"{told} raises on {high - low} of {size} in dimension {axis}: {type(problem).__name__}: {problem}"
                ) from problem
        for r, (all_of_it, first, second) in enumerate(zip(*made, strict=True)):
            joined = np.concatenate([first, second], axis)
            _compare(f"{told} makes other values of a part in dimension {axis}", r, joined, all_of_it, all_of_it)

    def _made(self, k: int, operand: Array) -> tuple[Array, ...]:
        return self._apply([operand if at == k else own for at, own in enumerate(self._reads)], self._shapes)

    def _apply(self, operands: Sequence[Array], shapes: Sequence[tuple[int, ...]]) -> tuple[Array, ...]:
        out: list[Array] = [np.zeros(shape, of) for shape, of in zip(shapes, self._types, strict=True)]
        self._function(*(np.array(operand) for operand in operands), out=tuple(out) if len(out) > 1 else out[0])
        return tuple(out)

    def _like(self, given: Array) -> Array:
        lowest = 0 if given.dtype.kind in "ub" else -3
        return self._random.integers(lowest, 4, given.shape).astype(given.dtype)


def _compare(told: str, result: int, found: Array, wanted: Array, scale: Array) -> None:
    """Raises if values differ by more than rounding does, which grows with the order of additions."""
    if found.dtype.kind in "iub":
        differ: Array = found != wanted
    else:
        one, other = found.astype(np.float64), wanted.astype(np.float64)
        size = np.abs(np.concatenate([one.ravel(), other.ravel(), scale.astype(np.float64).ravel(), [0.0]]))
        tolerance = math.sqrt(_precision(found.dtype)) * float(np.max(size, where=np.isfinite(size), initial=0.0))
        differ = np.isfinite(one) & np.isfinite(other) & ~(np.abs(one - other) <= tolerance)
    for at in _places(differ):
        raise ValueError(f"{told}: element {list(at)} of result {result} is {found[at]}, not {wanted[at]}")


def _places(differ: Array) -> Iterator[tuple[int, ...]]:
    for at in np.argwhere(differ):
        yield tuple(int(k) for k in at)


def _precision(of: np.dtype[Any]) -> float:
    try:
        return float(np.finfo(of).eps)
    except ValueError:  # a type that NumPy does not know, of at least two bits after the point
        return 0.25


def _numbers(operands: int, count: int) -> list[int]:
    """Which of `count` operands have a property."""
    return [k for k in range(count) if operands >> k & 1]
