"""Random programs in place, whose inputs are read-only memory maps."""

import itertools
import sys

import numpy as np
from here import RANK, SIZE

import gc3
from random_programs import random_program

FOLDER = sys.argv[1]

with gc3.init() as comm:
    made = ((seed, random_program(seed, in_place=True)) for seed in itertools.count())
    for seed, random in itertools.islice((found for found in made if found[1].ranks == SIZE), 16):
        program = gc3.compile(random.write(), instances=1 + seed % 2)
        for count in (7, 5000):
            given = [np.arange(random.inputs * count) % 11 + k for k in range(SIZE)]
            file = f"{FOLDER}/{seed}.{count}.{RANK}"
            given[RANK].tofile(file)
            x = np.memmap(file, given[RANK].dtype, "r")
            got = comm.run(program, x)
            assert (got is None) == (random.outputs[RANK] == 0)
            for rank, index, terms in random.results():
                if rank == RANK:
                    wanted = sum(given[k].reshape(random.inputs, -1)[i] * times for (k, i), times in terms.items())
                    assert np.array_equal(got.reshape(random.outputs[RANK], -1)[index], wanted), (seed, count)
            assert np.array_equal(x, given[RANK])
