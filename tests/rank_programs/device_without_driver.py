"""An array that says that it is on a device, where there is no driver."""

from here import error_of

import gc3


class Claims:
    """Presents itself as an array of a device."""

    __cuda_array_interface__ = {"data": (4096, False), "shape": (3,), "typestr": "<f4", "version": 3}  # noqa: RUF012


with gc3.init() as comm:
    assert "GC3-R015" in error_of(lambda: comm.all_reduce(Claims(), out=Claims()))
