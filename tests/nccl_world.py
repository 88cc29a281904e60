"""Programs that call NCCL's API as C programs do, on the fake driver and the fake NCCL.

Ranks are threads of a process, or communicators of one thread, or processes. The memory of the fake devices is the
host's, so arrays of NumPy are passed as device memory.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fake_driver
import forked
import gc3
from gc3 import nccl as overlay
from gc3.algorithms import catalogue

FAKE_NCCL = fake_driver.LIBRARY.parent / "libgc3_fake_nccl.so"
needs_library = pytest.mark.skipif(not FAKE_NCCL.exists(), reason="the fake NCCL is built by `make cpp-tests`")

TYPES = {"int8": 0, "uint8": 1, "int32": 2, "uint32": 3, "int64": 4, "uint64": 5, "float32": 7, "float64": 8}
# Those that the fake NCCL does not reduce.
NARROW = {"float16": 6, "bfloat16": 9, "float8_e4m3fn": 10, "float8_e5m2": 11}
OPS = {"sum": 0, "prod": 1, "max": 2, "min": 3}
SUCCESS, INVALID_ARGUMENT, INVALID_USAGE, REMOTE_ERROR, IN_PROGRESS = 0, 4, 5, 6, 7
# Seconds of GC3_COMM_TIMEOUT where a rank waits for one that does not come. Calls that all ranks make take a moment,
# and on a machine under load a second.
IN_VAIN = "2"
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
    with tempfile.TemporaryDirectory(prefix="gc3-") as scratch:
        done = _run(code, scratch, programs, log, environment)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout


def _run(
    code: str, scratch: str, programs: Path | None, log: Path | None, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    own = {
        **os.environ,
        **fake_driver.ENVIRONMENT,
        "FAKE_CUDA": "devices=8 mapped=1",
        "TMPDIR": scratch,  # of the fake NCCL
        "GC3_NCCL": str(FAKE_NCCL),
        "NCCL_DEBUG": "INFO",
        **({} if programs is None else {"GC3_NCCL_PROGRAMS": str(programs)}),
        **({} if log is None else {"GC3_NCCL_LOG": str(log)}),
        **environment,
    }
    with tempfile.TemporaryDirectory() as place:
        errors = Path(place, "errors")
        apart = f"import os\nos.dup2(os.open({str(errors)!r}, os.O_WRONLY | os.O_CREAT), 2)\n{code}"
        status, text = forked.run(apart, [], own, ["nccl_world", "ml_dtypes"], 240)
        return subprocess.CompletedProcess([], status, text, errors.read_text())


class _Id(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_char * 128),)


class Config(ctypes.Structure):
    """The beginning of ncclConfig_t; everything after it is as NCCL_CONFIG_INITIALIZER sets it."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("magic", ctypes.c_uint),
        ("version", ctypes.c_uint),
        ("blocking", ctypes.c_int),
        ("others", ctypes.c_int * 64),
    )

    def __init__(self, blocking: bool) -> None:
        """With one field set."""
        undefined = -(1 << 31)
        super().__init__(24, 0xCAFEBEEF, 23007, int(blocking), (undefined,) * 64)


def in_processes(
    size: int, case: Callable[..., None], *arguments: Any, places: Sequence[Sequence[int]] | None = None
) -> list[int]:
    """Calls `case(world, ...)` in a process for each rank, with a world of that rank, and returns how they have ended.

    `places`: the ranks of each process, which may be several. The calling process must not have loaded the overlay or
    the driver.
    """
    name = tempfile.mkdtemp(prefix="fake-nccl-").encode()  # what ncclGetUniqueId does
    children: list[int] = []
    sys.stdout.flush()
    for ranks in places or [(rank,) for rank in range(size)]:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                case(World(size, of=ranks, name=name), *arguments)
                status = 0
            except BaseException:
                traceback.print_exc()
            sys.stdout.flush()
            leave(status)
        children.append(child)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def leave(status: int) -> None:
    """Ends a process of `in_processes`: as `exit` of C does where the overlay has to write its log."""
    if "GC3_NCCL_LOG" not in os.environ:
        os._exit(status)
    ctypes.CDLL(None).exit(status)


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

    def __init__(self, world: World, rank: int, comm: ctypes.c_void_p | None = None, device: int | None = None) -> None:
        """Joins, unless it is given a communicator."""
        self.world, self.rank, self.size = world, rank, world.size
        self.device = rank if device is None else device
        self.comm = ctypes.c_void_p() if comm is None else comm
        self.streams: list[ctypes.c_void_p] = []
        with world.driver.on(self.device):
            if comm is None:
                name = "ncclCommInitRank" + ("" if world.config is None else "Config")
                config = () if world.config is None else (ctypes.byref(world.config),)
                answer = world.nccl[name](ctypes.byref(self.comm), world.size, world.id, rank, *config)
                assert answer in (SUCCESS, IN_PROGRESS), answer
            for _ in range(2):
                stream = ctypes.c_void_p()
                world.driver("cuStreamCreate", ctypes.byref(stream), 1)
                self.streams.append(stream)

    def synchronize(self) -> None:
        """Waits for both streams."""
        with self.world.driver.on(self.device):
            for stream in self.streams:
                self.world.driver("cuStreamSynchronize", stream)

    def async_error(self) -> int:
        """What a program that polls is told."""
        error = ctypes.c_int()
        self.world.check("ncclCommGetAsyncError", self.comm, ctypes.byref(error))
        return error.value

    def wait(self) -> int:
        """Polls until no call of a non-blocking communicator is in progress; returns how it ended."""
        while True:
            error = self.async_error()
            if error != IN_PROGRESS:
                return error

    def call(
        self,
        collective: str,
        give: Any,
        take: Any,
        count: int,
        *,
        op: str = "sum",
        root: int = 0,
        on: int = 0,
        numbers: tuple[int | None, int | None] = (None, None),
    ) -> int:
        """Makes a call on device `rank`, and returns NCCL's answer. `numbers`: another type and operation."""
        dtype = (give if give is not None else take).dtype
        data = (TYPES | NARROW)[str(dtype)] if numbers[0] is None else numbers[0]
        operation = OPS[op] if numbers[1] is None else numbers[1]
        send, recv = (None if a is None else ctypes.c_void_p(a.ctypes.data) for a in (give, take))
        end = (self.comm, self.streams[on])
        how: dict[str, tuple[Any, ...]] = {
            "allreduce": ("ncclAllReduce", data, operation),
            "allgather": ("ncclAllGather", data),
            "reducescatter": ("ncclReduceScatter", data, operation),
            "alltoall": ("ncclAlltoAll", data),
            "broadcast": ("ncclBroadcast", data, root),
            "reduce": ("ncclReduce", data, operation, root),
            "gather": ("ncclGather", data, root),
            "scatter": ("ncclScatter", data, root),
        }
        name, *rest = how[collective]
        with self.world.driver.on(self.device):
            return self.world.nccl[name](send, recv, ctypes.c_size_t(count), *rest, *end)


class World:
    """A communicator and its ranks in this process."""

    def __init__(
        self,
        size: int,
        *,
        of: Sequence[int] | None = None,
        name: bytes | None = None,
        config: Config | None = None,
        comms: Sequence[ctypes.c_void_p] | None = None,
        devices: Sequence[int] | None = None,
    ) -> None:
        """Makes the communicator, each rank on the device of its number: all ranks, or those in `of`.

        `comms`: the communicators exist already, on `devices`.
        """
        self.driver = Driver()
        self.nccl = ctypes.CDLL(str(overlay.library()))
        self.size, self.config = size, config
        self.id = _Id(name or b"")
        devices = devices or range(size)
        if comms is not None:
            self.ranks = [Rank(self, r, comm, devices[r]) for r, comm in enumerate(comms)]
            return
        if name is None:
            self.check("ncclGetUniqueId", ctypes.byref(self.id))
        # A thread that joins with several ranks does it in a group.
        self.check("ncclGroupStart")
        self.ranks = [Rank(self, r) for r in (range(size) if of is None else of)]
        answer = self.nccl.ncclGroupEnd()
        assert answer == (SUCCESS if config is None or config.blocking else IN_PROGRESS)

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

    def put(self, rank: Rank, on: int = 0, numbers: tuple[int | None, int | None] = (None, None)) -> int:
        """Makes the call of one rank."""
        r, how = rank.rank, {"op": self.op, "root": self.root, "on": on, "numbers": numbers}
        return rank.call(self.collective, self.give[r], self.take[r], self.count, **how)

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

    def check(self, ranks: Sequence[int] | None = None) -> None:
        """Compares the outputs, and the inputs, which stay as they are unless an output lies in them."""
        for r in range(self.size) if ranks is None else ranks:
            wanted = self.expected(r)
            if wanted is not None:
                np.testing.assert_array_equal(self.take[r], wanted, err_msg=f"{self.collective} rank {r}")
            if wanted is None or not np.shares_memory(self.give[r], self.take[r]):
                np.testing.assert_array_equal(self.give[r], self.given[r], err_msg=f"{self.collective} input {r}")
