"""timeout= of single calls: one for which a rank does not come gives up its group, on all ranks, and no other."""

from collections.abc import Callable

import numpy as np
from here import RANK, SIZE

import gc3

SHORT = 0.05
assert SIZE == 2

x = np.arange(8, dtype=np.float32)
half = [x[:4].copy(), x[4:].copy()]
out = np.empty(8, np.float32)
matrix = [[4, 4], [4, 4]]


def error_of(call: Callable[[], object]) -> str:
    try:
        call()
    except gc3.errors.Gc3Error as problem:
        return str(problem)
    return "no error"


def noted(comm: gc3.Communicator) -> None:
    with comm.coalesce(timeout=SHORT) as calls:
        calls.all_reduce(x)
        calls.all_gather(x)


def started_at_once(comm: gc3.Communicator) -> None:
    calls = comm.coalesce(timeout=SHORT)
    calls.all_reduce(x)
    calls.start().wait()


LIMIT = {"timeout": SHORT}
CALLS: list[Callable[[gc3.Communicator], object]] = [
    lambda c: c.all_reduce(x, timeout=SHORT),
    lambda c: c.all_gather(x, **LIMIT),
    lambda c: c.reduce_scatter(x, **LIMIT),
    lambda c: c.all_to_all(x, **LIMIT),
    lambda c: c.broadcast(x.copy(), root=1, **LIMIT),
    lambda c: c.reduce(x, **LIMIT),
    lambda c: c.gather(x, **LIMIT),
    lambda c: c.scatter(x, root=1, out=out[:4], **LIMIT),
    lambda c: c.barrier(timeout=SHORT),
    lambda c: c.all_reduce_async(x, timeout=SHORT).wait(),
    lambda c: c.gather_async(x, timeout=SHORT).wait(),
    lambda c: c.all_to_all(half, out=half, timeout=SHORT),
    lambda c: c.gather(x, out=[out, out.copy()], timeout=SHORT),
    noted,
    started_at_once,
    lambda c: c.all_to_all_v(x, matrix, timeout=SHORT),
    lambda c: c.all_to_all_v(x, [4, 4], timeout=SHORT),  # in the exchange of counts
    lambda c: c.all_gather_v(x, [8, 8], timeout=SHORT),
    lambda c: c.reduce_scatter_v(x, [4, 4], timeout=SHORT),
    lambda c: c.gather_v(x, timeout=SHORT),
    lambda c: c.scatter_v(root=1, out=out[:4], timeout=SHORT),
    lambda c: c.all_to_all_v_async(x, matrix, timeout=SHORT).wait(),
]

with gc3.init() as comm:
    for number, call in enumerate(CALLS):
        with comm.group([0, 1], name=f"of call {number}") as group:
            comm.barrier()  # a group that was given up before would not be made
            found = ""
            if RANK == 0:
                found = error_of(lambda call=call, group=group: call(group))
                assert "GC3-R003" in found, (number, found)
                assert f"group of call {number}: call 2 has made no progress for " in found, (number, found)
                assert " for 0 " not in found, (number, found)
                assert "not called yet by rank 1 (process " in found, (number, found)
            comm.barrier()
            # The group is given up on both, for the same reason, without a wait.
            later = error_of(lambda group=group: group.all_reduce(x))
            assert "not called yet by rank 1" in later, (number, later)
            assert comm.broadcast_object(later) == later
    # A time-out that does not pass changes nothing, also where ranks give different ones.
    for timeout in (60, 1e300, float("inf"), None):
        assert comm.all_reduce(x, timeout=timeout if RANK else 50)[1] == SIZE
        assert comm.all_gather_v(x[: RANK + 1], timeout=timeout).tolist() == [0, 0, 1]
    # Mistakes are found before any rank takes part.
    for wrong in (0, -1, float("nan")):
        for call in (
            lambda wrong=wrong: comm.all_reduce(x, timeout=wrong),
            lambda wrong=wrong: comm.gather_v(x, timeout=wrong),
            lambda wrong=wrong: comm.all_to_all_v_async(x, matrix, timeout=wrong),
            lambda wrong=wrong: comm.barrier(timeout=wrong),
            lambda wrong=wrong: comm.coalesce(timeout=wrong),
        ):
            found = error_of(call)
            assert "expected a number of seconds above 0" in found, found
    comm.barrier()
