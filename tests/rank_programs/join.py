"""Joins and adds, or prints the error that keeps this process from joining. It may lack the variables of a rank.

join.py [own-secrets]    with an argument, every rank has a secret of its own
"""

import os
import sys

import numpy as np

import gc3

if sys.argv[1:] == ["own-secrets"]:
    os.environ["GC3_SECRET"] = f"{os.environ['RANK']} is a secret of its own"
    os.environ["GC3_JOIN_TIMEOUT"] = "8"
try:
    with gc3.init() as comm:
        print(comm.all_reduce(np.ones(3))[0])
except gc3.Gc3Error as problem:
    print(problem)
