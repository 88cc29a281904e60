"""The ranks give arrays of different types, in their first call and in a later one: `device_types_differ.py CALL`."""

import sys

import numpy as np
from here import RANK, error_of
from on_device import there

import gc3

with gc3.init() as comm:
    x, other = there(np.ones(5)), there(np.ones(5), np.int32)
    if sys.argv[1] == "later":
        comm.all_reduce(x, out=x)
        comm.synchronize()
    wrong = x if RANK == 0 else other

    def call() -> None:
        """The call that differs."""
        comm.all_reduce(wrong, out=wrong)
        comm.synchronize()

    print(error_of(call))
    print(error_of(call).splitlines()[0])
