"""Rank 1 becomes another user, and then broadcasts an object."""

import os

from here import RANK

import gc3

with gc3.init() as comm:
    comm.barrier()
    if RANK == 1:
        os.setresuid(65534, 65534, 65534)
    try:
        print(comm.broadcast_object("read" if RANK == 1 else None, 1))
    except gc3.CommError as problem:
        print(problem.code, problem.message)
