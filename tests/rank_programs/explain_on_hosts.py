"""Prints which row serves an all-reduce of 4 KiB on ranks of several hosts: `explain_on_hosts.py [TABLE]`."""

import sys

import gc3

with gc3.init(table=sys.argv[1] if sys.argv[1:] else None) as comm:
    assert (comm.all_reduce([1.0] * 1000) == comm.size).all()
    explained = comm.explain("allreduce", 1024)
    some = comm.split(0)
    assert some is not None
    with some:
        assert some.transport == comm.transport
    print(f"chosen by {explained.source}; not {explained.passed_over}; {explained.call}; {comm.transport}")
