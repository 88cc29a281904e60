"""Programs that call NCCL's API as C programs do, on the fake driver and the fake NCCL: ranks are threads of a process.

The memory of the fake devices is the host's, so arrays of NumPy are passed as device memory.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fake_driver
import gc3
from gc3 import nccl as overlay
from gc3.algorithms import catalogue

FAKE_NCCL = fake_driver.LIBRARY.parent / "libgc3_fake_nccl.so"
needs_library = pytest.mark.skipif(not FAKE_NCCL.exists(), reason="the fake NCCL is built by `make cpp-tests`")

TYPES = {"int8": 0, "uint8": 1, "int32": 2, "uint32": 3, "int64": 4, "uint64": 5, "float32": 7, "float64": 8}
OPS = {"sum": 0, "prod": 1, "max": 2, "min": 3}
# The algorithm that serves each collective in these tests, and whether it works in place.
SERVED = {
    "allreduce": ("ring_allreduce", True),
    "allgather": ("ring_allgather", True),
    "reducescatter": ("ring_reducescatter", False),
    "alltoall": ("direct_alltoall", False),
    "broadcast": ("flat_broadcast", True),
    "reduce": ("flat_reduce", False),
    "gather": ("flat_gather", False),
    "scatter": ("flat_scatter", False),
}
ROOTED = ("broadcast", "reduce", "gather", "scatter")


def write_programs(
    folder: Path, ranks: Sequence[int], served: Mapping[str, tuple[str, bool]] = SERVED, sizes: str = "0 -"
) -> Path:
    """Writes a folder of programs, in the form of `gc3 table export`."""
    lines = ["gc3-programs-1"]
    folder.mkdir(exist_ok=True)
    for n in ranks:
        for collective, (name, in_place) in served.items():
            for root in range(n) if collective in ROOTED else (0,):
                given = {"root": root} if collective in ROOTED else {}
                file = f"{name}-{n}-{root}.gc3"
                gc3.compile(catalogue()[name], in_place=in_place, R=n, **given).save(folder / file)
                lines.append(f"{collective} {n} {sizes} {int(in_place)} {root} 0 0 {file}")
    (folder / "index").write_text("\n".join(lines) + "\n")
    return folder


def run(
    case: Callable[..., None], *arguments: Any, programs: Path | None, log: Path | None = None, **environment: str
) -> str:
    """Calls a function of a test module in a process of its own, behind the overlay, and returns its output."""
    code = f"import sys; sys.path[:0] = {sys.path!r}; import {case.__module__} as m; m.{case.__name__}(*{arguments!r})"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
        env={
            **os.environ,
            **fake_driver.ENVIRONMENT,
            "FAKE_CUDA": "devices=8",
            "GC3_NCCL": str(FAKE_NCCL),
            "NCCL_DEBUG": "INFO",
            **({} if programs is None else {"GC3_NCCL_PROGRAMS": str(programs)}),
            **({} if log is None else {"GC3_NCCL_LOG": str(log)}),
            **environment,
        },
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


class _Id(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_char * 128),)


class Driver:
    """The fake driver; contexts are those of the calling thread."""

    def __init__(self) -> None:
        """Loads it."""
        self.library = ctypes.CDLL(os.environ["GC3_CUDA_DRIVER"])
        self("cuInit", 0)

    def __call__(self, symbol: str, *arguments: Any) -> None:
        """Calls a function, which must succeed."""
        assert getattr(self.library, symbol)(*arguments) == 0, symbol

    @contextmanager
    def on(self, device: int) -> Iterator[None]:
        """Makes a device current."""
        context = ctypes.c_void_p()
        self("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self("cuCtxPushCurrent_v2", context)
        try:
            yield
        finally:
            self("cuCtxPopCurrent_v2", ctypes.byref(context))


class Rank:
    """A rank of a communicator on its own device, with two streams."""

    def __init__(self, world: World, rank: int) -> None:
        """Joins."""
        self.world, self.rank, self.size = world, rank, world.size
        self.comm = ctypes.c_void_p()
        self.streams: list[ctypes.c_void_p] = []
        with world.driver.on(rank):
            world.check("ncclCommInitRank", ctypes.byref(self.comm), world.size, world.id, rank)
            for _ in range(2):
                stream = ctypes.c_void_p()
                world.driver("cuStreamCreate", ctypes.byref(stream), 1)
                self.streams.append(stream)

    def synchronize(self) -> None:
        """Waits for both streams."""
        with self.world.driver.on(self.rank):
            for stream in self.streams:
                self.world.driver("cuStreamSynchronize", stream)

    def call(
        self, collective: str, give: Any, take: Any, count: int, *, op: str = "sum", root: int = 0, on: int = 0
    ) -> int:
        """Makes a call on device `rank`, and returns NCCL's answer."""
        dtype = (give if give is not None else take).dtype
        data = TYPES[str(dtype)]
        send, recv = (None if a is None else ctypes.c_void_p(a.ctypes.data) for a in (give, take))
        end = (self.comm, self.streams[on])
        how: dict[str, tuple[Any, ...]] = {
            "allreduce": ("ncclAllReduce", data, OPS[op]),
            "allgather": ("ncclAllGather", data),
            "reducescatter": ("ncclReduceScatter", data, OPS[op]),
            "alltoall": ("ncclAlltoAll", data),
            "broadcast": ("ncclBroadcast", data, root),
            "reduce": ("ncclReduce", data, OPS[op], root),
            "gather": ("ncclGather", data, root),
            "scatter": ("ncclScatter", data, root),
        }
        name, *rest = how[collective]
        with self.world.driver.on(self.rank):
            return self.world.nccl[name](send, recv, ctypes.c_size_t(count), *rest, *end)


class World:
    """A communicator and its ranks in this process."""

    def __init__(self, size: int) -> None:
        """Makes the communicator, each rank on the device of its number."""
        self.driver = Driver()
        self.nccl = ctypes.CDLL(str(overlay.library()))
        self.size = size
        self.id = _Id()
        self.check("ncclGetUniqueId", ctypes.byref(self.id))
        self.ranks = [Rank(self, r) for r in range(size)]

    def check(self, symbol: str, *arguments: Any) -> None:
        """Calls a function, which must succeed."""
        answer = self.nccl[symbol](*arguments)
        assert answer == 0, (symbol, answer, self.last_error())

    def last_error(self) -> str:
        """The text of the last error of this thread."""
        function = self.nccl.ncclGetLastError
        function.restype = ctypes.c_char_p
        return (function(None) or b"").decode()

    def each(self, work: Callable[[Rank], None]) -> None:
        """Calls a function for each rank, in a thread of its own."""
        problems: list[BaseException] = []

        def guarded(rank: Rank) -> None:
            try:
                work(rank)
            except BaseException as problem:
                problems.append(problem)

        threads = [threading.Thread(target=guarded, args=(rank,)) for rank in self.ranks]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if problems:
            raise problems[0]

    @contextmanager
    def group(self) -> Iterator[None]:
        """A group of calls of this thread."""
        self.check("ncclGroupStart")
        yield
        self.check("ncclGroupEnd")

    def close(self) -> None:
        """Destroys the ranks' communicators, one after the other."""
        for rank in self.ranks:
            rank.synchronize()
            self.check("ncclCommDestroy", rank.comm)


class Case:
    """The buffers of a collective for all ranks, in place or not on each, and what must be in them afterwards."""

    def __init__(
        self,
        collective: str,
        size: int,
        count: int,
        dtype: str,
        in_place: Sequence[bool],
        *,
        op: str = "sum",
        root: int = 0,
        seed: int = 0,
    ) -> None:
        """Fills the inputs by `seed`."""
        self.collective, self.size, self.count, self.op, self.root = collective, size, count, op, root
        rng = np.random.default_rng(seed)
        gives = size if collective in ("reducescatter", "alltoall", "scatter") else 1
        takes = size if collective in ("allgather", "alltoall", "gather") else 1
        self.given = [rng.integers(0, 3, gives * count).astype(dtype) for _ in range(size)]
        self.give: list[Any] = []
        self.take: list[Any] = []
        for r in range(size):
            give, take = self.given[r].copy(), np.full(takes * count, 77, dtype)
            if in_place[r] and collective != "alltoall":
                if collective == "allgather":
                    take[r * count : (r + 1) * count] = give
                    give = take[r * count : (r + 1) * count]
                elif collective == "reducescatter":
                    take = give[r * count : (r + 1) * count]
                elif collective == "gather":
                    if r == root:
                        take[r * count : (r + 1) * count] = give
                        give = take[r * count : (r + 1) * count]
                elif collective == "scatter":
                    if r == root:
                        take = give[r * count : (r + 1) * count]
                else:
                    take = give
            self.give.append(give)
            self.take.append(take)

    def put(self, rank: Rank, on: int = 0) -> int:
        """Makes the call of one rank."""
        r = rank.rank
        return rank.call(self.collective, self.give[r], self.take[r], self.count, op=self.op, root=self.root, on=on)

    def expected(self, r: int) -> Any:
        """What is in the output of a rank, or None if it has none."""
        own = slice(r * self.count, (r + 1) * self.count)
        fold = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}[self.op]
        everyone = self.given
        if self.collective in ("reduce", "gather") and r != self.root:
            return None
        found: dict[str, Callable[[], Any]] = {
            "allgather": lambda: np.concatenate(everyone),
            "gather": lambda: np.concatenate(everyone),
            "alltoall": lambda: np.concatenate([given[own] for given in everyone]),
            "broadcast": lambda: everyone[self.root],
            "scatter": lambda: everyone[self.root][own],
            "allreduce": lambda: fold.reduce(everyone, dtype=everyone[0].dtype),
            "reduce": lambda: fold.reduce(everyone, dtype=everyone[0].dtype),
            "reducescatter": lambda: fold.reduce(everyone, dtype=everyone[0].dtype)[own],
        }
        return found[self.collective]()

    def check(self) -> None:
        """Compares the outputs, and the inputs, which stay as they are unless an output lies in them."""
        for r in range(self.size):
            wanted = self.expected(r)
            if wanted is not None:
                np.testing.assert_array_equal(self.take[r], wanted, err_msg=f"{self.collective} rank {r}")
            if wanted is None or not np.shares_memory(self.give[r], self.take[r]):
                np.testing.assert_array_equal(self.give[r], self.given[r], err_msg=f"{self.collective} input {r}")
