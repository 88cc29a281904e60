"""Learns while calls run, and prints what was learned.

adapting.py forms               every form of calls, ranks at random distances; all results are checked
adapting.py settle [OPTION]     one AllReduce until its program is known; OPTION as `adapt`, JSON
adapting.py bits TABLE          that every call of "exact" gives the bits of the first one
adapting.py killed              rank 1 is killed while programs are tried
adapting.py differ              rank 1 does not wish to learn
adapting.py generate TABLE SAID     until what is told has a match of SAID; all results are checked
adapting.py reason TABLE            until rank 1 has failed to generate a program
adapting.py leave TABLE [close]     ends, perhaps after it has closed, while a program is generated
"""

import json
import os
import random
import re
import signal
import sys
import threading
import time

import numpy as np
from here import RANK, SIZE, at_once

import gc3
from gc3.comm import generating

COUNT = 5000
delays = random.Random(RANK)  # noqa: S311 - no secret


def far_apart() -> None:
    """Sometimes waits, so that ranks make their calls at different times."""
    if delays.random() < 0.03:
        time.sleep(delays.random() * 2e-3)


def learned(comm: gc3.Communicator, collective: str = "allreduce", count: int = COUNT, **more: object) -> str:
    return comm.explain(collective, count, "float32", **more).learned


def forms() -> None:
    total = sum(range(1, SIZE + 1))
    counts = [3 + r for r in range(SIZE)]
    with gc3.init(adapt=True, adapt_share=1.0) as comm, comm.split(0) as group:
        for _ in range(80):
            for each in (comm, group):
                far_apart()
                x = np.full(COUNT, RANK + 1, np.float32)
                assert each.all_reduce(x)[-1] == total
                handles = [each.all_reduce_async(x) for _ in range(3)]
                far_apart()
                assert each.all_reduce(x, out=x)[0] == total  # in turn after those
                assert all(handle.wait()[7] == total for handle in handles)
                assert each.broadcast(np.full(700, RANK, np.float32), root=1)[-1] == 1
                many = at_once(each, "all_reduce", [np.full(n, RANK + 1, np.float32) for n in (5, 100, 17)])
                assert all(got[-1] == total for got in many)
                blocks = each.all_gather_v(np.full(counts[RANK], RANK, np.float32), counts)
                assert np.concatenate([blocks]).ravel().tolist() == [r for r in range(SIZE) for _ in range(counts[r])]
        said = [learned(each) for each in (comm, group)]
        assert all("of " in text and "programs after" in text for text in said), said
        assert comm.all_gather_object(said) == [said] * SIZE
        assert "programs after" in comm.explain("allgather", 0, "float32", counts=counts).learned
    print("right")


def settle(option: object) -> None:
    with gc3.init(adapt=option, adapt_share=1.0) as comm:
        x = np.full(COUNT, RANK + 1, np.float32)
        comm.all_reduce(x)
        for _ in range(20_000):
            if not (text := learned(comm)) or "the best of" in text:
                break
            comm.all_reduce(x)
        print(learned(comm))


def bits(table: str) -> None:
    x = np.random.default_rng(RANK).random(COUNT, np.float32)
    with gc3.init(table=table) as comm:
        first = comm.all_reduce(x)
    with gc3.init(table=table, adapt="exact", adapt_share=1.0) as comm:
        for _ in range(500):
            assert np.array_equal(comm.all_reduce(x), first)
        print(learned(comm))


def killed() -> None:
    comm = gc3.init(adapt=True, adapt_share=1.0)
    x = np.ones(COUNT, np.float32)
    try:
        for call in range(1_000_000):
            if RANK == 1 and call == int(sys.argv[2]):
                os.kill(os.getpid(), signal.SIGKILL)
            comm.all_reduce(x)
    except gc3.CommError as problem:
        assert problem.code == "GC3-R009", problem
        assert "rank 1 (process" in problem.message, problem
        print("told")


def differ() -> None:
    with gc3.init(adapt=RANK != 1) as comm:
        for _ in range(100):
            comm.all_reduce(np.ones(COUNT, np.float32))
        print(learned(comm))


def until(table: str, said: str) -> gc3.Communicator:
    comm = gc3.init(table=table, adapt=True, adapt_share=1.0)
    x = np.full(COUNT, RANK + 1, np.float32)
    total = sum(range(1, SIZE + 1))
    assert (comm.all_reduce(x) == total).all()
    # What is told changes in the same calls on all ranks.
    while not re.search(said, learned(comm)):
        assert (comm.all_reduce(x) == total).all()
    return comm


def generate(table: str, said: str) -> None:
    with until(table, said) as comm:
        print(learned(comm))


def reason(table: str) -> None:
    def fail(*_: object) -> object:
        raise ValueError("planned")

    if RANK == 1:
        generating.neighbours = fail
    with until(table, r"\((another rank|ValueError)") as comm:
        print(learned(comm))


def leave(table: str, close: str = "") -> None:
    begun, closes = threading.Event(), threading.Event()

    def wait(*_: object) -> list[object]:
        begun.set()
        closes.wait()
        return []

    generating.neighbours = wait
    comm = until(table, "is being made")
    begun.wait()
    threading.Timer(0.1, closes.set).start()  # while this thread waits in close(), or in the end of the interpreter
    if close:
        comm.close()
        assert closes.is_set()
    print("left")


if sys.argv[1] == "settle":
    settle(json.loads(sys.argv[2]) if sys.argv[2:] else None)
elif sys.argv[1] == "bits":
    bits(sys.argv[2])
elif sys.argv[1] in ("generate", "reason", "leave"):
    {"generate": generate, "reason": reason, "leave": leave}[sys.argv[1]](*sys.argv[2:])
else:
    {"forms": forms, "killed": killed, "differ": differ}[sys.argv[1]]()
