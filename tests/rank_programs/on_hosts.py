"""What a rank of several hosts can do: `python on_hosts.py RANKS_PER_HOST`."""

import sys

import numpy as np

import gc3

here = int(sys.argv[1])
with gc3.init() as comm:
    hosts = comm.hosts
    assert [ranks for _, ranks in hosts] == [list(range(first, first + here)) for first in range(0, comm.size, here)], (
        hosts
    )
    assert [name.split()[0] for name, _ in hosts] == [f"node{host}" for host in range(comm.size // here)], hosts
    for _ in range(3):
        comm.barrier()
    one = np.ones(5, "float32")
    # Rows of the table have other protocols than Simple for many of these sizes.
    for count in (1, 3, 5, 500, 5_000, 50_000, 300_000):
        for dtype in ("float32", "float64"):
            summed = comm.all_reduce(np.full(count, comm.rank + 1, dtype))
            assert (summed == comm.size * (comm.size + 1) / 2).all()
        gathered = comm.all_gather(np.full(count, comm.rank, "float32"))
        assert (np.ravel(gathered) == np.repeat(np.arange(comm.size), count)).all()
        sent = comm.broadcast(np.full(count, comm.rank, "float32"), root=comm.size - 1)
        assert (sent == comm.size - 1).all()
    assert "between hosts: " in str(comm.explain("allreduce", 5))
    got = comm.all_to_all_v(np.full(comm.size, comm.rank), [1] * comm.size)
    assert (np.ravel(got) == np.arange(comm.size)).all(), got
    try:
        comm.send(one, (comm.rank + here) % comm.size)
    except gc3.UserError as problem:
        assert "GC3-R027" in str(problem), problem
    else:
        raise AssertionError("a message between hosts has not been refused")
    with comm.split(comm.rank // here) as near:
        assert (near.all_reduce(one) == here).all()
    with comm.split(comm.rank % here) as far:
        far.barrier()
        assert (far.all_reduce(np.ones(3)) == far.size).all()
    comm.barrier()
print("all right")
