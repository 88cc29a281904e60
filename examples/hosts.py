"""Adds up numbers on several hosts, and says what was proven, why this program was chosen, and how long it takes.

make demo-hosts                                      on two simulated hosts of two ranks
torchrun --nnodes 2 --nproc-per-node 2 --node-rank 0 --master-addr node0 examples/hosts.py     on real ones
"""

import statistics
import time

import numpy as np

import gc3
from gc3.algorithms import load

CALLS = 20

with gc3.init() as comm:
    hosts = comm.hosts
    if comm.rank == 0:
        for name, ranks in hosts:
            print(f"{name}: ranks {', '.join(map(str, ranks))}")
        each = comm.size // len(hosts)
        program = gc3.compile(load("hierarchical_allreduce"), N=len(hosts), G=each, in_place=True)
        report = gc3.verify(program)
        print(f"proven: {program.name}, {report.transfers} transfers, free of deadlock with {report.slots} FIFO slots")
    for count in (256, 1 << 18, 1 << 22):
        data = np.full(count, comm.rank + 1, np.float32)
        comm.all_reduce(data, out=data)
        right = (data == comm.size * (comm.size + 1) / 2).all()
        times: list[float] = []
        for _ in range(CALLS):
            comm.barrier()
            began = time.perf_counter()
            comm.all_reduce(data, op="max", out=data)
            times.append(time.perf_counter() - began)
        if comm.rank == 0:
            verdict = "right" if right else "WRONG"
            print(f"{4 * count} B: {verdict}, {1e6 * statistics.median(times):.0f} us", flush=True)
    if comm.rank == 0:
        print(comm.explain("allreduce", 1 << 22, in_place=True), flush=True)
