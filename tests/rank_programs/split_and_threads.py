"""Two communicators used by two threads, and communicators made by split."""

import threading

from here import RANK

import gc3

a, b = gc3.init(), gc3.init()


def work(comm: gc3.Communicator, times: int) -> None:
    for i in range(times):
        assert comm.all_reduce(i) == i * comm.size


threads = [threading.Thread(target=work, args=(comm, 100)) for comm in (a, b)]
for t in threads:
    t.start()
for t in threads:
    t.join()
half = a.split(RANK % 2, key=-RANK)
assert half.size == 2
assert half.rank == (1 if RANK < 2 else 0)
assert half.all_gather([RANK]).tolist() == [2 + RANK % 2, RANK % 2]
assert (a.split(None if RANK else 0) is None) == (RANK != 0)
half.close()
b.close()
assert a.all_reduce(1) == 4
a.close()
try:
    a.barrier()
except gc3.UserError as problem:
    assert problem.code == "GC3-R011"
