"""A fork during a call of its parent: it can neither wait for the call nor end it."""

import os
import signal
import sys
import time
from pathlib import Path

from here import RANK

import gc3

comm, go_on = gc3.init(), Path(sys.argv[1])
if RANK == 1:
    while not go_on.exists():
        time.sleep(0.01)
    assert comm.all_reduce(1) == 2
    sys.exit()
call = comm.all_reduce_async(1)
child = os.fork()
if child == 0:
    signal.alarm(20)
    for wait in (call.wait, lambda: call.wait(timeout=30), comm.synchronize, lambda: comm.all_reduce(1)):
        try:
            wait()
        except gc3.UserError as problem:
            assert problem.code == "GC3-R012", problem
        else:
            os._exit(2)
    comm.abort()
    with comm:
        sys.exit()  # in the process that made the communicator, this would abort the running call
assert os.waitpid(child, 0)[1] == 0
go_on.touch()
assert call.wait() == 2
