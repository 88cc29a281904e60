"""Arrays that cannot be used are refused, and the communicator goes on."""

import numpy as np
from here import error_of
from on_device import InterfaceArray, there

import gc3
from fake_arrays import DlpackArray

with gc3.init() as comm:
    x = there(np.ones((4, 4)))
    assert "makes no array like itself: give out=" in error_of(lambda: comm.all_reduce(x))
    host = np.ones((4, 4), np.float32)
    assert "the input is on a device and out is not" in error_of(lambda: comm.all_reduce(x, out=host))
    strided = InterfaceArray(np.ones((4, 4)), strides=(8, 32))
    assert "not contiguous" in error_of(lambda: comm.all_reduce(strided, out=x))
    assert "DLPack's type (3, 64 bits)" in error_of(lambda: comm.all_reduce(DlpackArray(np.ones(4), 3)))
    long = InterfaceArray(np.zeros(4, np.longdouble))
    assert "GC3-M002" in error_of(lambda: comm.all_reduce(long, out=x))
    comm.barrier()
    if comm.rank == 0:  # and where one rank alone has such an array, the other learns that
        error_of(lambda: comm.all_gather(there(np.zeros(4), "M8[s]"), out=x))
    told = error_of(comm.barrier)
    assert "rank 0: a call with wrong arguments: 'datetime64[s]'" in told, told
