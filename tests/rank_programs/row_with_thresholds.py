"""Gathers with the table of the command line, and prints the program that it chooses."""

import sys

import numpy as np
from here import RANK, SIZE

import gc3

with gc3.init(table=sys.argv[1]) as comm:
    gathered = comm.all_gather(np.full(30_000, RANK))
    assert (gathered.reshape(SIZE, -1).mean(1) == np.arange(SIZE)).all()
    print(comm.explain("allgather", 30_000).program)
