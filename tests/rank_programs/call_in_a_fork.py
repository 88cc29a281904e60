"""A fork cannot use the communicator of its parent."""

import os

from here import SIZE

import gc3

comm = gc3.init()
child = os.fork()
if child == 0:
    try:
        comm.all_reduce(1)
    except gc3.UserError as problem:
        os._exit(0 if problem.code == "GC3-R012" else 1)
    os._exit(2)
assert os.waitpid(child, 0)[1] == 0
assert comm.all_reduce(1) == SIZE
