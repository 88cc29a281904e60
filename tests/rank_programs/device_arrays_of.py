"""Two ranks call with arrays of a library on the device, and get arrays of that library.

device_arrays_of.py torch|cupy
"""

import importlib
import sys

from here import RANK

import gc3

library = importlib.import_module(sys.argv[1])
where = {"device": "cuda"} if sys.argv[1] == "torch" else {}
with gc3.init() as comm:
    x = library.ones(1000, dtype=library.float32, **where) * (RANK + 1)
    y = comm.all_reduce(x)
    z = comm.all_gather(x)
    comm.synchronize()
    assert type(y) is type(x)
    assert y.shape == x.shape
    assert bool((y == 3).all())
    assert z.shape[0] == 2000
    assert bool((z[:1000] == 1).all())
    assert bool((z[1000:] == 2).all())
