"""Prints which rows serve an all-reduce of 4 KiB and a v-form on several hosts: `explain_on_hosts.py [TABLE]`."""

import sys

import gc3

with gc3.init(table=sys.argv[1] if sys.argv[1:] else None) as comm:
    assert (comm.all_reduce([1.0] * 1000) == comm.size).all()
    explained = comm.explain("allreduce", 1024)
    counts = [2] + [1] * (comm.size - 1)
    gathered = comm.all_gather_v([1.0] * counts[comm.rank], counts)
    assert (gathered == 1).all()
    v_form = comm.explain("allgather", 0, counts=counts)
    some = comm.split(0)
    assert some is not None
    with some:
        assert some.transport == comm.transport
    print(f"v-form by {v_form.source}")
    print(f"chosen by {explained.source}; not {explained.passed_over}; {explained.call}; {comm.transport}")
