"""Runs a program three times on each input of a folder, and prints the bits of the outputs: `same_bits.py FOLDER`."""

import sys
from pathlib import Path

import numpy as np
from here import RANK

import gc3

folder = Path(sys.argv[1])
program = gc3.Program.load(folder / "program.gc3")
with gc3.init() as comm:
    for file in sorted(folder.glob(f"*.{RANK}.npy")):
        op = file.name.partition(".")[0]
        for _ in range(3):
            out = comm.run(program, np.load(file), op=op)
            print(op, None if out is None else out.tobytes().hex())
