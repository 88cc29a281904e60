"""What a rank of several hosts can do: `python on_hosts.py RANKS_PER_HOST FOLDER`.

A rank to which all is right leaves a file of its number in the folder: launchers mix what ranks print.
"""

import contextlib
import sys
from pathlib import Path

import numpy as np

import gc3
from gc3 import _core

here, folder = int(sys.argv[1]), Path(sys.argv[2])
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
    # The slots of a row for one host suit shared memory.
    assert _core.Joined.of(comm).find_program("reduce", 1 << 20, "float32", False, 0).slots == 8
    if here > 1:
        assert "hierarchical_allreduce" in comm.explain("allreduce", 1 << 20).program
        assert "two_step_alltoall" in comm.explain("alltoall", 1 << 10).program
    got = comm.all_to_all_v(np.full(comm.size, comm.rank), [1] * comm.size)
    assert (np.ravel(got) == np.arange(comm.size)).all(), got
    # Every length of a message goes another way: at once, in parts, and when it is asked for.
    after, before = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    for count in (0, 1, 1000, 10_000, 1_000_000):
        data = np.full(count, comm.rank, "float32")
        got = np.empty(count, "float32")
        comm.sendrecv(data, after, got, before)
        assert (got == before).all()
        pending = [comm.isend(data, other, tag=other) for other in range(comm.size)]
        for _ in range(comm.size):
            envelope = comm.recv(got, tag=comm.rank)
            assert envelope.count == count, envelope
            assert (got == envelope.source).all()
        for one_send in pending:
            one_send.wait()
        comm.barrier()  # messages of the next length have the same tags
    with comm.coalesce() as calls:
        sums = [calls.all_reduce(np.full(count, comm.rank + 1.0)) for count in (3, 40_000, 0, 1)]
    for summed in sums:
        assert (summed == comm.size * (comm.size + 1) / 2).all()
    with comm.group([0, comm.size - 1]) if comm.rank in (0, comm.size - 1) else contextlib.nullcontext() as pair:
        if pair is not None:
            assert (pair.all_reduce(np.ones(1000)) == 2).all()
            pair.sendrecv(one, 1 - pair.rank, one, 1 - pair.rank)
    with comm.split(comm.rank // here) as near:
        assert (near.all_reduce(one) == here).all()
    with comm.split(comm.rank % here) as far:
        far.barrier()
        assert (far.all_reduce(np.ones(3)) == far.size).all()
    # Ranks that are not in the order of their hosts: programs take them host by host.
    if comm.size == 4 and here == 2:
        with comm.group([0, 2, 1, 3]) as mixed:
            told = mixed.explain("allreduce", 1 << 20)
            assert "hierarchical_allreduce" in told.program, told
            assert "ranks host by host: 0 2 1 3" in str(told), told
            for count in (1, 7, 50_000):
                whole = np.arange(4 * count) + 1000 * mixed.rank
                assert (mixed.all_reduce(whole) == 4 * np.arange(4 * count) + 6000).all()
                gathered = np.ravel(mixed.all_gather(np.full(count, mixed.rank)))
                assert (gathered == np.repeat(np.arange(4), count)).all()
                part = np.ravel(mixed.reduce_scatter(whole))
                assert (part == 4 * np.arange(mixed.rank * count, (mixed.rank + 1) * count) + 6000).all()
                got = np.ravel(mixed.all_to_all(np.repeat(np.arange(4) + 10 * mixed.rank, count)))
                assert (got == np.repeat(10 * np.arange(4) + mixed.rank, count)).all()
                for root in range(4):
                    assert (mixed.broadcast(np.full(count, mixed.rank), root=root) == root).all()
            got = mixed.all_to_all_v(np.full(6 + 4 * mixed.rank, mixed.rank), [mixed.rank + to for to in range(4)])
            assert (np.ravel(got) == np.repeat(np.arange(4), mixed.rank + np.arange(4))).all(), got
        with comm.group([0, 1, 2]) if comm.rank < 3 else contextlib.nullcontext() as unequal:
            if unequal is not None:
                told = str(unequal.explain("allreduce", 1 << 20))
                assert "not hosts.json row 4: for as many ranks on each host" in told, told
                assert (unequal.all_reduce(one) == 3).all()
    comm.barrier()
    (folder / str(comm.rank)).touch()
