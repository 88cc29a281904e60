"""Functions of Python that a call runs while it reads or releases arrays, and that use the communicator themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from here import error_of

import gc3


class Sends(np.ndarray[Any, Any]):
    """Sends when it is released."""

    released = 0

    def __del__(self) -> None:
        """Makes the list of kept arrays longer, which is being cut."""
        Sends.released += 1
        for _ in range(40):
            comm.isend(np.zeros(2, np.float32), 0, 9)


class Closes:
    """An array, or a number, that closes the communicator when it is read."""

    def __init__(self, comm: gc3.Communicator) -> None:
        """Of this communicator."""
        self.comm = comm

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        """Closes it."""
        self.comm.close()
        return np.zeros(4, np.float32)

    def __index__(self) -> int:
        """Closes it."""
        self.comm.close()
        return 0


with gc3.init() as comm:
    sends = [comm.isend(Sends((4,), np.float32), 0, 1) for _ in range(60)]
    sends[-1].wait()
    assert Sends.released == 60, Sends.released

y = np.zeros(4, np.float32)
calls: list[Callable[[gc3.Communicator, Any], object]] = [
    lambda comm, closes: comm.send(closes, 0),
    lambda comm, closes: comm.isend(closes, 0),
    lambda comm, closes: comm.isend(y, 0, closes),
    lambda comm, closes: comm.recv(y, 0, closes),
    lambda comm, closes: comm.irecv(y, closes),
    lambda comm, closes: comm.sendrecv(closes, 0, y, 0),
    lambda comm, closes: comm.batch([gc3.Recv(y, 0), gc3.Send(y, closes)]),
    lambda comm, closes: comm.recv_object(0, closes),
    lambda comm, closes: comm.all_reduce(closes),
]
for call in calls:
    comm = gc3.init()
    closes = Closes(comm)
    said = error_of(lambda call=call, comm=comm, closes=closes: call(comm, closes))
    assert said.startswith("GC3-R011 "), said
