"""A call on an array of the device, while another thread's first call compiles its program with the interpreter."""

import threading
import time
from typing import Any
from unittest import mock

import numpy as np
from on_device import there

import gc3
from gc3.comm.spec import Spec

compile_program = Spec.compile
compiling = threading.Event()


def slowly(self: Spec, ranks: int, **rest: Any) -> gc3.Program:
    """Lets the other thread run meanwhile."""
    compiling.set()
    time.sleep(0.2)
    return compile_program(self, ranks, **rest)


with mock.patch.object(Spec, "compile", slowly), gc3.init() as comm:
    other = threading.Thread(target=comm.all_reduce, args=(np.ones(5),))
    other.start()
    compiling.wait()
    x = there(np.ones(5))
    comm.all_reduce(x, out=x)
    other.join()
    comm.synchronize()
    assert x.memory.content.tolist() == [1] * 5
