"""Calls on arrays of a device by ranks of several hosts: `python device_on_hosts.py PER_HOST` in tests/hosts.py."""

import os
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
import fake_arrays

os.environ.update(fake_arrays.ENVIRONMENT)  # before the driver is loaded
from on_device import there

import gc3

with gc3.init() as comm:
    assert len(comm.hosts) == comm.size // int(sys.argv[1])
    for count in (1000, 60_000):  # of a block; whole slots and a part of one
        size = count * comm.size
        everyone = [np.arange(size, dtype="float32") % 1000 + rank for rank in range(comm.size)]
        own = slice(count * comm.rank, count * (comm.rank + 1))
        x = there(everyone[comm.rank])
        total, gathered, turned = there(np.zeros(size)), there(np.zeros(size)), there(np.zeros(size))
        comm.all_reduce(x, out=total)
        comm.all_gather(there(everyone[comm.rank][own]), out=gathered)
        comm.all_to_all(x, out=turned)
        comm.synchronize()
        assert np.array_equal(total.memory.content, np.sum(everyone, axis=0))
        assert np.array_equal(
            gathered.memory.content, np.concatenate([e[i * count :][:count] for i, e in enumerate(everyone)])
        )
        assert np.array_equal(turned.memory.content, np.concatenate([e[own] for e in everyone]))
    assert comm.all_reduce(np.ones(3)).tolist() == [comm.size] * 3
    said = str(comm.explain("allreduce", 1000))
    assert "CUDA IPC (" in said, said
    assert "to other hosts: a proxy and pinned memory, over " in said, said
    if os.environ.get("GC3_CUDA_WINDOWS") == "1":
        assert "the ranks are on several hosts" in said, said
print("all right", flush=True)
