"""The root's data is a mapped file, which is truncated before the call."""

import os
import sys

import numpy as np
from here import RANK

import gc3

FILE = sys.argv[1]

comm = gc3.init()
comm.broadcast(np.ones(1_000_000, np.float32), root=0)
x = np.zeros(1_000_000, np.float32)
if RANK == 0:
    x.tofile(FILE)
    x = np.memmap(FILE, np.float32, "r+")
    os.truncate(FILE, 0)
try:
    comm.broadcast(x, root=0)
    print("well")
except gc3.Gc3Error as problem:
    print(problem)
