"""Ranks 0 and 1 join once more, after rank 2 has become another user or while it does not know their secret."""

import os
import sys

from here import RANK

import gc3


def files() -> int:
    """The files of shared memory that this process has."""
    with os.scandir("/proc/self/fd") as entries:
        return sum("gc3" in os.readlink(e.path) for e in list(entries) if os.path.lexists(e.path))


def said(comm: gc3.Communicator) -> str:
    """What a call that must trust all who can write its memory says."""
    try:
        return comm.broadcast_object("read")
    except gc3.CommError as problem:
        return f"{problem.code} {problem.message}"


with gc3.init() as everyone:
    pair = everyone.group([0, 1]) if RANK < 2 else None
    again = gc3.init(RANK, 2, job="trusted") if RANK < 2 else None
    assert files() == 1
    everyone.barrier()
    if RANK == 2 and sys.argv[1] == "other user":
        os.setresuid(65534, 65534, 65534)
    everyone.barrier()
    if pair is not None and again is not None:
        if sys.argv[1] == "secret":
            os.environ["GC3_SECRET"] = "0123456789abcdef"  # noqa: S105 - of this test alone
        with gc3.init(RANK, 2, job="trusted") as trusted:
            print(files(), said(trusted), "|", said(pair), "|", said(again))
    everyone.barrier()
