"""Every type and operation of the tables in every call that takes it, and values of other sizes in those that move."""

from collections.abc import Callable

import ml_dtypes
import numpy as np
from here import RANK, SIZE

import gc3
from gc3 import datatypes
from gc3.runtime.checking import FUNCTIONS

N = 6  # elements for each rank
LENGTHS = [N + 1, N - 1]  # of blocks of different lengths
OTHER = 1 - RANK
assert SIZE == 2

MOVED = [np.dtype(t) for t in ("M8[s]", "m8[ms]", "S3", "U2", "V5", "i1,f8", "(3,)f4,?", "S0")]
MOVED += [np.dtype(t) for t in (ml_dtypes.int4, ml_dtypes.float8_e4m3b11fnuz, ml_dtypes.float8_e3m4)]


def values(rank: int, dtype: np.dtype, count: int = SIZE * N) -> np.ndarray:
    """Values of a rank: small whole numbers, which every type has, or any bytes."""
    numbers = (np.arange(count) * (rank + 2) + rank) % 4
    if dtype in datatypes.DTYPES.values():
        return (numbers * (1 + 1j) if dtype.kind == "c" else numbers).astype(dtype)
    if dtype.kind in "SU":
        return np.array(["abcd"[int(n)] for n in numbers], dtype)
    bits = np.random.default_rng(rank).integers(0, 8, count * max(dtype.itemsize, 1), np.uint8)
    return bits[: count * dtype.itemsize].view(dtype) if dtype.itemsize else np.zeros(count, dtype)


def folded(op: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """NumPy's result of two ranks."""
    if op == "avg":
        total = a + b
        return total // 2 if total.dtype.kind in "iu" else (total / total.dtype.type(2)).astype(total.dtype)
    return FUNCTIONS[op](a, b).astype(a.dtype)


def check(what: object, got: object, wanted: object) -> None:
    """Compares bytes, and what they mean."""
    if isinstance(wanted, list):
        assert isinstance(got, list), what
        assert len(got) == len(wanted), what
        for one, other in zip(got, wanted, strict=True):
            check(what, one, other)
        return
    if wanted is None:
        assert got is None, what
        return
    assert got.dtype == wanted.dtype, (what, got.dtype)
    assert got.shape == wanted.shape, (what, got.shape)
    assert got.tobytes() == wanted.tobytes(), (what, got, wanted)


def split(x: np.ndarray, lengths: list[int]) -> list[np.ndarray]:
    return [x[: lengths[0]], x[lengths[0] : sum(lengths)]]


comm = gc3.init()


def at_once(*calls: Callable[[gc3.Communicator], object]) -> list[object]:
    with comm.coalesce() as noted:
        return [call(noted) for call in calls]


def reductions(op: str, dtype: np.dtype) -> None:
    mine, a, b = values(RANK, dtype), values(0, dtype), values(1, dtype)
    whole = folded(op, a, b)
    part, parts = split(whole, [N, N])[RANK], split(whole, LENGTHS)
    at_root = whole if RANK == 1 else None
    for what, got, wanted in (
        ("all_reduce", comm.all_reduce(mine, op), whole),
        ("all_reduce_async", comm.all_reduce_async(mine, op).wait(), whole),
        ("reduce", comm.reduce(mine, op, 1), at_root),
        ("reduce_scatter", comm.reduce_scatter(mine, op), part),
        ("a list", comm.reduce_scatter(split(mine, [N, N]), op, out=np.empty(N, dtype)), part),
        ("reduce_scatter_v", comm.reduce_scatter_v(mine, LENGTHS, op), parts[RANK]),
        ("reduce_scatter_v_async", comm.reduce_scatter_v_async(split(mine, LENGTHS), op=op).wait(), parts[RANK]),
        ("many", at_once(lambda c: c.all_reduce(mine, op), lambda c: c.all_reduce(mine[:3], op)), [whole, whole[:3]]),
        ("one", at_once(lambda c: c.reduce_scatter(mine, op)), [part]),
        (
            "at once",
            at_once(
                lambda c: c.all_reduce(mine, op), lambda c: c.reduce(mine, op, 1), lambda c: c.all_reduce(mine[:2], op)
            ),
            [whole, at_root, whole[:2]],
        ),
    ):
        check((what, op, str(dtype)), got, wanted)
    out = np.empty_like(mine)
    for what in ("once", "again"):  # the same buffers, after a list of others
        check((what, op, str(dtype)), comm.all_reduce(mine, op, out), whole)
        at_once(lambda c: c.all_reduce(mine, op), lambda c: c.all_reduce(mine[:3], op))


def factors(dtype: np.dtype) -> None:
    mine, a, b = values(RANK, dtype), values(0, dtype), values(1, dtype)
    twice, scaled = gc3.PreMulSum(2), (a + a + b + b).astype(dtype)
    check("all_reduce", comm.all_reduce(mine, twice), scaled)
    check("reduce", comm.reduce(mine, twice, 1), scaled if RANK == 1 else None)
    check("reduce_scatter", comm.reduce_scatter(mine, twice), split(scaled, [N, N])[RANK])
    many = at_once(lambda c: c.all_reduce(mine, twice), lambda c: c.all_reduce(mine[:3], twice))
    check("many", many, [scaled, scaled[:3]])


def movements(dtype: np.dtype) -> None:
    every = [values(rank, dtype) for rank in range(SIZE)]
    mine = every[RANK]
    joined = np.concatenate(every)
    crossed = np.concatenate([split(x, [N, N])[RANK] for x in every])
    matrix = [LENGTHS, [N, N]]
    uneven = [split(x, lengths)[RANK] for x, lengths in zip(every, matrix, strict=True)]
    lengths = [3, 5]
    some = [x[:length] for x, length in zip(every, lengths, strict=True)]
    at_root = joined if RANK == 0 else None
    sent = mine.copy()

    def into(count: int) -> np.ndarray:
        return np.empty(count, dtype)

    def received() -> np.ndarray:
        comm.sendrecv(mine, OTHER, out := into(mine.size))
        return out

    def in_turn() -> np.ndarray:
        out = into(mine.size)
        first, second = (lambda: comm.send(mine, OTHER, 7)), (lambda: comm.recv(out, OTHER, 7))
        for step in (first, second) if RANK == 0 else (second, first):
            step()
        return out

    def started() -> np.ndarray:
        out = into(mine.size + 2)
        get, put = comm.irecv(out), comm.isend(mine, OTHER)
        put.wait()
        assert get.wait().count == mine.size
        return out[: mine.size]

    def batched() -> np.ndarray:
        comm.batch([gc3.Send(mine, OTHER), gc3.Recv(out := into(mine.size), OTHER)])
        return out

    for what, got, wanted in (
        ("all_gather", comm.all_gather(mine), joined),
        ("all_gather into a list", comm.all_gather(mine, [into(mine.size), into(mine.size)]), every),
        ("all_to_all", comm.all_to_all(mine), crossed),
        ("broadcast", comm.broadcast(sent.copy(), 1), every[1]),
        ("gather", comm.gather(mine), at_root),
        ("scatter", comm.scatter(mine, 1, into(N)), split(every[1], [N, N])[RANK]),
        ("all_to_next", comm.all_to_next(mine), None if RANK == 0 else every[0]),
        ("all_to_all_async", comm.all_to_all_async(mine).wait(), crossed),
        ("all_to_all_v", comm.all_to_all_v(mine, matrix), np.concatenate(uneven)),
        ("all_to_all_v of a list", comm.all_to_all_v(split(mine, matrix[RANK])), uneven),
        ("all_gather_v", comm.all_gather_v(some[RANK]), np.concatenate(some)),
        ("gather_v", comm.gather_v(some[RANK]), np.concatenate(some) if RANK == 0 else None),
        (
            "scatter_v",
            comm.scatter_v(mine if RANK == 1 else None, LENGTHS, 1, out=into(LENGTHS[RANK])),
            split(every[1], LENGTHS)[RANK],
        ),
        (
            "many",
            at_once(lambda c: c.all_gather(mine), lambda c: c.all_gather(mine[:1])),
            [joined, np.array([x[0] for x in every], dtype)],
        ),
        (
            "at once",
            at_once(lambda c: c.all_gather(mine), lambda c: c.all_to_all(mine), lambda c: c.broadcast(sent.copy(), 0)),
            [joined, crossed, every[0]],
        ),
        ("send and recv", in_turn(), every[OTHER]),
        ("sendrecv", received(), every[OTHER]),
        ("isend and irecv", started(), every[OTHER]),
        ("batch", batched(), every[OTHER]),
    ):
        check((what, str(dtype)), got, wanted)
    check("the input", mine, sent)


for dtype in (*datatypes.DTYPES.values(), *MOVED):
    movements(dtype)
pairs = [(op, t) for t in datatypes.DTYPES.values() for op in datatypes.OPS if datatypes.takes(op, t)]
for op, dtype in pairs:
    reductions(op, dtype)
scaled = [t for t in datatypes.DTYPES.values() if datatypes.takes("premulsum", t)]
for dtype in scaled:
    factors(dtype)
print(len(datatypes.DTYPES), len(MOVED), len(pairs), len(scaled))
comm.close()
