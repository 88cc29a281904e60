"""The library on several hosts: `python library_on_hosts.py RANKS_PER_HOST SHARE SHARES` in tests/hosts.py.

Runs every SHARES-th program of the library, of those with SHARE as remainder, and compares with NumPy.
"""

import itertools
import sys

import numpy as np

import gc3
from gc3 import algorithms
from gc3.runtime.checking import Case

EACH, SHARE, SHARES = map(int, sys.argv[1:])
COUNTS = (1, 1009, 0, 120_011)  # fewer elements than chunks, short last chunks, none, several messages
TYPES = ("int32", "float64", "float16", "uint8")

with gc3.init() as comm:
    rank, size = comm.rank, comm.size
    made = 0
    product = itertools.product(sorted(algorithms.catalogue()), (False, True), (1, 2))
    for number, (name, in_place, instances) in enumerate(product):
        algorithm = algorithms.load(name)
        sizes = {"R": size} if any(p.name == "R" for p in algorithm.parameters) else {"N": size // EACH, "G": EACH}
        if number % SHARES != SHARE:
            continue
        try:
            # All its connections may be between hosts, so its protocol is Simple.
            program = gc3.compile(algorithm, **sizes, in_place=in_place, instances=instances, protocol="Simple")
        except gc3.UserError:
            continue  # not for so many ranks, or not in place; the same on all ranks
        made += 1
        # Other counts and types in each share, so that all shares together have many pairs.
        count, dtype = COUNTS[(number + SHARE) % len(COUNTS)], TYPES[number // 3 % len(TYPES)]
        case = Case(program.collective, count, dtype, seed=number)
        inputs = case.inputs()
        got = comm.run(program, inputs[rank], count=count, dtype=dtype)
        for of, start, values in case.expected(inputs):
            if of == rank:
                found = np.ravel(got)[start : start + values.size]
                assert np.array_equal(found, values), (name, sizes, in_place, instances, count, dtype)
    print(f"all right: {made} programs")
