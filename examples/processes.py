"""Averages numbers over the ranks, each a process of this host, and says which program did it.

mpirun -n 4 python examples/processes.py
torchrun --standalone --nproc-per-node 4 examples/processes.py
srun -n 4 python examples/processes.py
for r in 0 1 2 3; do RANK=$r WORLD_SIZE=4 MASTER_ADDR=localhost MASTER_PORT=29500 python examples/processes.py & done
"""

import numpy as np

import gc3

with gc3.init() as comm:
    gradient = np.full(1 << 20, comm.rank, np.float32)
    comm.all_reduce(gradient, op="avg", out=gradient)
    expected = (comm.size - 1) / 2
    verdict = "right" if (gradient == expected).all() else "WRONG"
    print(f"rank {comm.rank} of {comm.size}: the average is {gradient[0]:g}, which is {verdict}", flush=True)
    comm.barrier()
    if comm.rank == 0:
        print(comm.explain("allreduce", gradient.size, in_place=True))
