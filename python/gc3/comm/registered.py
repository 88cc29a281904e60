"""Registered memory: arrays that the other ranks of a host can reach, and the one-sided programs that need them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from gc3 import _core, datatypes, errors
from gc3.comm import arrays
from gc3.comm.v_forms import VForms
from gc3.cuda.arrays import DeviceArray

if TYPE_CHECKING:
    from gc3.datatypes import Array, DType

_MOST = 2**63 - 1  # the largest number of bytes or elements in the core


class Registered(VForms):
    """The part of a communicator that concerns registered memory."""

    def __init__(self, joined: _core.Joined) -> None:
        """To be called by subclasses."""
        super().__init__(joined)
        self._joined = joined

    def empty(self, shape: int | tuple[int, ...], dtype: Any = "float32") -> Array:
        """Returns a new array of zeros that all ranks can reach, so that large calls on it need fewer copies.

        The memory is shared among the processes of the job. It is freed when the array and its views are deleted.
        """
        typed = datatypes.movable(dtype)
        sizes = shape if isinstance(shape, tuple) else (shape,)
        sizes = tuple(errors.whole(length, "shape", 0, _MOST, name="BadBuffer") for length in sizes)
        size = errors.whole(math.prod(sizes) * typed.itemsize, "bytes", 0, _MOST, name="OutOfMemory")
        return np.ndarray(sizes, typed, self._joined.allocate(size))

    def register(self, array: Any) -> Array:
        """Returns an array with the data of `array` in registered memory: itself if it lies there, else a copy.

        Memory of the process cannot be shared afterwards, so the copy costs one pass over the data and as much memory
        again; later changes of `array` do not reach it. Make the array with `empty` to save both. Local.

        Raises:
            gc3.UserError: It is no array of the host, or there is not enough memory.
        """
        given = arrays.source(array)
        if isinstance(given, DeviceArray):
            raise errors.error("BadBuffer", "register takes arrays of the host; this one is on a device")
        if self._joined.is_registered(np.ravel(given)):
            return given
        made = self.empty(given.shape, given.dtype)
        np.copyto(made, given)
        return made

    def _new_result(self, model: _core.Collective, given: Array | None, count: int, dtype: DType) -> Array | None:
        """A new registered array for the result of this rank."""
        size = model.output_blocks(self.rank) * count
        shape = given.shape if given is not None and given.size == size else size
        return self.empty(shape, dtype) if model.output_blocks(self.rank) else None
