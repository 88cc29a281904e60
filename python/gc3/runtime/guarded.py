"""Functions of compute operations, called on guarded copies: what they may not do is an error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from gc3.properties import check as check_properties

if TYPE_CHECKING:
    from gc3.datatypes import Array

_EDGE = 128  # bytes before and after a copy
_GUARD = 0xA5


class _Copy:
    """A copy of a chunk between guards."""

    def __init__(self, array: Array, fill: int | None = None) -> None:
        """Copies the array, or fills as many bytes."""
        self.memory: Array = np.full(array.nbytes + 2 * _EDGE, _GUARD, np.uint8)
        inner: Array = self.memory[_EDGE : _EDGE + array.nbytes]
        flat: Array = np.frombuffer(inner, array.dtype)
        self.view: Array = np.reshape(flat, array.shape)
        if fill is None:
            np.copyto(self.view, array)
        else:
            inner[:] = fill
        self._before: Array = np.array(self.memory)

    def changed(self) -> bool:
        """Whether anything was written."""
        return not np.array_equal(self.memory, self._before)

    def escaped(self) -> bool:
        """Whether a guard was written."""
        return bool((self.memory[:_EDGE] != _GUARD).any() or (self.memory[-_EDGE:] != _GUARD).any())


def guarded(function: Callable[..., None], properties: Sequence[int]) -> Callable[..., object]:
    """Returns a function that calls another twice on guarded copies, with different bytes in the results.

    It tests the properties that are declared of the operation.
    """

    def call(*reads: Array, out: Array | tuple[Array, ...]) -> object:
        several = isinstance(out, tuple)
        places = out if several else (out,)
        before: list[_Copy] | None = None
        for fill in (0, _GUARD ^ 0xFF):
            operands = [_Copy(array) for array in reads]
            results = [_Copy(array, fill) for array in places]
            views = tuple(result.view for result in results)
            returned: object = function(*(operand.view for operand in operands), out=views if several else views[0])
            if returned is not None and returned is not (views if several else views[0]):
                return returned
            for k, operand in enumerate(operands):
                if operand.changed():
                    raise ValueError(f"it writes operand {k}, which it may only read")
            for k, result in enumerate(results):
                if result.escaped():
                    raise ValueError(f"it writes beside result {k}")
                if before is not None and not np.array_equal(result.memory, before[k].memory):
                    raise ValueError(
                        f"it makes other values of the same operands: it leaves a part of result {k} as it was, reads "
                        "it, or depends on something else"
                    )
            before = results
        check_properties(function, properties, reads, places)
        for place, result in zip(places, before or (), strict=True):
            np.copyto(place, result.view)
        return None

    return call
