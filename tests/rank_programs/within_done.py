"""What a function that is passed as `done` may do, and what it may not.

within_done.py call|message|last_call|last_message    what calls it; the last ones release the communicator there
"""

import gc
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
from here import RANK, SIZE, error_of

import gc3

OTHER = (RANK + 1) % SIZE
x = np.ones(100_000)


def of_a_call() -> None:
    """What waits for started calls is an error; another call may be started."""
    with gc3.init() as comm:
        said: list[str] = []
        later: list[gc3.Handle[Any]] = []
        known = threading.Event()

        def done() -> None:
            known.wait()
            calls: list[Callable[[], object]] = [
                lambda: comm.all_reduce(x),
                lambda: comm.all_gather_v(x),
                comm.barrier,
                comm.synchronize,
                comm.close,
                lambda: comm.split(0),
                started.wait,
                lambda: started.wait(1),
            ]
            said.extend(error_of(call) for call in calls)
            said.append(str(len(calls)))
            later.append(comm.all_reduce_async(2 * x))

        started = comm.all_reduce_async(x, done=done)
        known.set()
        assert started.wait()[-1] == SIZE
        assert said.pop() == str(len(said))
        assert all(text.startswith("GC3-R028 ") for text in said), said
        assert later.pop().wait()[-1] == 2 * SIZE
        assert comm.all_reduce(1) == SIZE


def of_a_message() -> None:
    """The communicator cannot be closed there; its calls are made."""
    with gc3.init() as comm:
        said: list[str] = []
        ended = threading.Event()

        def done() -> None:
            said.append(error_of(comm.close))
            comm.synchronize()
            said.append(str(comm.all_reduce(1)))
            ended.set()

        comm.irecv(np.zeros_like(x), OTHER, 5, done=done)
        comm.isend(x, OTHER, 5)
        ended.wait()
        assert said[0].startswith("GC3-R028 "), said
        assert said[1:] == [str(SIZE)], said
        assert comm.all_reduce(1) == SIZE


def releases(by_a_call: bool) -> None:
    """The last reference goes in `done`, whose thread cannot wait for itself."""
    let_go, gone = threading.Event(), threading.Event()

    def begin() -> None:
        comm = gc3.init()
        held = [comm]

        def done() -> None:
            let_go.wait()
            held.clear()
            gc.collect()  # it refers to itself
            gone.set()

        if by_a_call:
            comm.all_reduce_async(x, done=done)
        else:
            comm.irecv(np.zeros_like(x), OTHER, 5, done=done)
            comm.isend(x, OTHER, 5)
        watched.append(weakref.ref(comm))

    watched: list[weakref.ref[gc3.Communicator]] = []
    begin()
    let_go.set()
    gone.wait()
    assert watched[0]() is None
    while any(not thread.daemon for thread in threading.enumerate()[1:]):  # another thread closes it
        time.sleep(0.01)


WAYS: dict[str, Callable[[], None]] = {
    "call": of_a_call,
    "message": of_a_message,
    "last_call": lambda: releases(True),
    "last_message": lambda: releases(False),
}
WAYS[sys.argv[1]]()
