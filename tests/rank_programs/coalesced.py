"""Many arrays in one call: the same results as call by call, for every collective, any sizes, programs and types."""

import contextlib
import os
import threading

import numpy as np
from here import RANK, SIZE, at_once
from library import compilers

import gc3
from gc3.datatypes import FORMATS

SIZES = [
    [3, 1, 4, 1, 5],
    [0, 7, 0],
    [1000],
    [70_001, 5, 3],
    [2048] * 20,
    [1, 30_000, 2, 40_000, 0, 9],
    [90_000, 5, 20_000],
]
LARGE = [600_000, 5, 200_000]  # with the table's programs: this takes three times as long as all the others
DIVIDED = {"reduce_scatter", "all_to_all", "scatter"}
REDUCING = {"all_reduce", "reduce_scatter", "reduce"}
ROOTED = {"broadcast", "reduce", "gather", "scatter"}
NAMES = {
    "all_reduce": "allreduce",
    "all_gather": "allgather",
    "reduce_scatter": "reducescatter",
    "all_to_all": "alltoall",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
    "all_to_next": "alltonext",
}


def inputs(name: str, sizes: list[int], dtype: str) -> list[np.ndarray]:
    """What this rank gives: numbers that add up exactly."""
    rng = np.random.default_rng(RANK)
    return [rng.integers(0, 9, size * (SIZE if name in DIVIDED else 1)).astype(dtype) for size in sizes]


def extra(name: str, number: int) -> dict[str, object]:
    """The other arguments of a call."""
    made: dict[str, object] = {}
    if name in REDUCING:
        made["op"] = ("sum", "max", "avg")[number % 3]
    if name in ROOTED:
        made["root"] = number % SIZE
    return made


def same(many: list, single: list) -> bool:
    """Whether results are equal, None among them."""
    return len(many) == len(single) and all(
        (a is None) == (b is None) and (a is None or (a.dtype == b.dtype and np.array_equal(a, b)))
        for a, b in zip(many, single, strict=True)
    )


def one_by_one(comm: gc3.Communicator, name: str, xs: list[np.ndarray], rest: dict[str, object]) -> list:
    """The results of single calls."""
    xs = [x.copy() for x in xs]
    if name == "scatter":
        return [comm.scatter(x, out=np.empty(x.size // SIZE, x.dtype), **rest) for x in xs]
    return [getattr(comm, name)(x, **rest) for x in xs]


def together(comm: gc3.Communicator, name: str, xs: list[np.ndarray], rest: dict[str, object], later: bool) -> list:
    """The results of the same calls at once."""
    calls = comm.coalesce()
    outs = [{"out": np.empty(x.size // SIZE, x.dtype)} if name == "scatter" else {} for x in xs]
    with contextlib.nullcontext() if later else calls:
        found = [getattr(calls, name)(x.copy(), **rest, **out) for x, out in zip(xs, outs, strict=True)]
    return calls.start().wait() if later else found


def library(kind: str) -> list[gc3.Program]:
    """Every algorithm of a collective."""
    return [
        build(instances=1 + i % 2, in_place=kind == "broadcast", protocol=FORMATS[i % 3])
        for i, build in enumerate(compilers(kind))
    ]


def every_collective(comm: gc3.Communicator) -> None:
    """The table's programs, then every program of the library."""
    number = 0
    for name, kind in NAMES.items():
        for program in [None, *library(kind)]:
            if program is not None:
                comm.load(program)
            for sizes in SIZES if program is not None else [*SIZES, LARGE]:
                number += 1
                dtype = ("float32", "int32", "float64", "uint8")[number % 4]
                rest = extra(name, 0 if program is not None and name in ROOTED else number)
                if rest.get("op") == "avg" and dtype[0] != "f":
                    rest["op"] = "sum"
                xs = inputs(name, sizes, dtype)
                single = one_by_one(comm, name, xs, rest)
                many = together(comm, name, xs, rest, later=number % 2 == 0)
                assert same(many, single), (name, program and program.name, sizes, dtype, rest, many, single)
    assert number > len(NAMES) * len(SIZES) * 2


def in_place_and_mixed(comm: gc3.Communicator) -> None:
    """Results in the memory of the inputs; different calls in one block; lists of an array for each rank."""
    xs = [np.full(n, RANK + 1.0, np.float32) for n in (5, 3000, 17)]
    with comm.coalesce() as calls:
        assert all(calls.all_reduce(x, out=x) is x for x in xs)
    assert all((x == SIZE * (SIZE + 1) / 2).all() for x in xs)

    whole = [np.zeros((SIZE, n), np.int32) for n in (2, 50)]
    for w in whole:
        w[RANK] = RANK + 1
    a, b = np.full(9, RANK, np.int64), np.full(4, RANK, np.float64)
    with comm.coalesce() as calls:
        for w in whole:
            calls.all_gather(w[RANK], out=w)
        total = calls.all_reduce(a, "max")
        calls.broadcast(b, root=SIZE - 1)
        scaled = calls.all_reduce(np.ones(6), gc3.PreMulSum(RANK + 1.0))
        listed = calls.all_gather(a, out=[np.zeros(9, np.int64) for _ in range(SIZE)])
    assert all((w == np.arange(1, SIZE + 1)[:, None]).all() for w in whole)
    assert (total == SIZE - 1).all()
    assert (b == SIZE - 1).all()
    assert (scaled == SIZE * (SIZE + 1) / 2).all()
    assert all((part == rank).all() for rank, part in enumerate(listed))

    parts = [np.full(7, 10 * RANK + d, np.int32) for d in range(SIZE)]
    got = comm.all_to_all(parts, out=[np.zeros(7, np.int32) for _ in range(SIZE)])
    assert all((part == 10 * s + RANK).all() for s, part in enumerate(got))
    assert (comm.reduce_scatter(parts, out=np.zeros(7, np.int32)) == sum(10 * s + RANK for s in range(SIZE))).all()
    assert (comm.scatter(parts if RANK == 0 else None, out=np.zeros(7, np.int32)) == RANK).all()
    gathered = comm.gather(a, root=0, out=[np.zeros(9, np.int64) for _ in range(SIZE)] if RANK == 0 else None)
    assert gathered is None if RANK else all((part == rank).all() for rank, part in enumerate(gathered))
    assert (comm.all_gather_async(a, out=listed).wait()[0] == 0).all()
    try:
        with comm.coalesce() as calls:
            calls.all_reduce(a)
            raise KeyError
    except KeyError:
        pass
    with comm.coalesce():
        pass

    mine = np.full(33, RANK + 1.0)
    assert comm.reduce(mine, root=0, out=mine if RANK == 0 else None) is (mine if RANK == 0 else None)
    assert (mine == (SIZE * (SIZE + 1) / 2 if RANK == 0 else RANK + 1)).all()


def overlapping(comm: gc3.Communicator, *pairs: tuple[np.ndarray, np.ndarray]) -> None:
    """Calls at once, one of which uses what another writes."""
    with comm.coalesce() as calls:
        for given, out in pairs:
            calls.all_reduce(given, out=out)


def mistakes(comm: gc3.Communicator) -> None:
    """Errors at once, after which the communicator goes on."""
    x = np.zeros(8)
    wrong = [
        (lambda: overlapping(comm, (x, x), (x, x)), "call 0 and call 1 of those made at once use the same"),
        (lambda: overlapping(comm, (x[:4], np.zeros(4)), (x[4:] + 1, x[3:7])), "call 0 and call 1"),
        (lambda: comm.all_gather(x, out=[x] * (SIZE + 1)), f"a list of {SIZE + 1} arrays, not {SIZE}"),
        (lambda: comm.all_gather(x, out=[*[np.zeros(8)] * (SIZE - 1), np.zeros(7)]), "differ in type or size"),
    ]
    for call, text in wrong[: 2 if SIZE == 1 else None]:
        try:
            call()
        except gc3.UserError as problem:
            assert text in str(problem), problem
        else:
            raise AssertionError(text)
    same_input = at_once(comm, "all_reduce", [x, x])
    assert len(same_input) == 2


def completion(comm: gc3.Communicator) -> None:
    """Functions that are called when an asynchronous call has ended."""
    ended, order = threading.Event(), list[str]()
    x = np.ones(5)
    first = comm.all_reduce_async(x, done=lambda: order.append("first"))
    calls = comm.coalesce()
    for _ in range(2):
        calls.all_reduce(x)
    many = calls.start(done=lambda: order.append("many"))
    calls.all_reduce(x)
    last = calls.start(done=ended.set)
    assert ended.wait(60)
    assert order == ["first", "many"]
    assert (first.wait() == SIZE).all()
    assert (many.wait()[1] == SIZE).all()
    assert (last.wait()[0] == SIZE).all()
    called = threading.Event()
    handle = comm.all_to_all_v_async([x[:1]] * SIZE, done=called.set)
    assert called.wait(60)
    assert len(handle.wait()) == SIZE


with gc3.init() as comm:
    in_place_and_mixed(comm)
    mistakes(comm)
    completion(comm)
    if os.environ.get("EVERY", "1") == "1":
        every_collective(comm)
    assert (comm.all_reduce(np.ones(3)) == SIZE).all()
