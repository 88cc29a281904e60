"""A rank that answers requests like `mpi.c`: of gc3, of Gloo in PyTorch, or of MPI in mpi4py.

python benchmarks/peers/rank.py LIBRARY FOLDER [RANK RANKS [TABLE]]

A request says how the calls are made; the time of the slowest rank counts:

- "reused": on the same buffers, each call after a barrier;
- "rotated": the same, each call on the next of many pairs of buffers, which no cache holds together;
- "rows": calls follow each other without barriers, 16 in an iteration. A time is from the last rank's end of one
  iteration to the last rank's end of the next, divided by 16. It does not depend on the order in which ranks leave a
  barrier, and contains what a rank needs to get its core;
- "waits": each call after a sleep of random length and no barrier. A time is from the last rank's call to the last
  rank's return. The last number is the processor time of all ranks for a call.

It needs NumPy and the library alone: each library has an environment of its own.
"""

from __future__ import annotations

import mmap
import os
import signal
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from gc3.datatypes import Array

_REDUCE = ("allreduce", "reducescatter")
_BLOCKS = ("allgather", "alltoall")
_LONGEST_S = 1e-3  # sleep before a call
_ROW = 16  # calls of an iteration of "rows", as in mpi.c

Pair: TypeAlias = "tuple[Array, Array]"


def buffer(size: int) -> Array:
    """Returns `size` bytes of float32 in pages like those of malloc: NumPy would request huge ones, C does not."""
    memory = mmap.mmap(-1, max(size, 1), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return np.frombuffer(memory, np.float32, size // 4)


def pauses(rank: int) -> Iterator[float]:
    """Yields seconds to sleep before each call of a rank, the same in each run; `mpi.c` has the same numbers."""
    state = rank + 1
    while True:
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        yield (state >> 33) / 2**31 * _LONGEST_S


@dataclass(frozen=True, slots=True)
class Request:
    """A line of the requesting process; `pairs` is the number of pairs of buffers in turn."""

    collective: str
    size: int
    warmup: int
    iterations: int
    check: bool
    language: str
    pattern: str
    pairs: int

    @classmethod
    def read(cls, line: str) -> Request:
        """Returns the request of a line."""
        name, size, warmup, iterations, check, language, pattern, pairs = line.split()
        return cls(name, int(size), int(warmup), int(iterations), check == "1", language, pattern, int(pairs))


class Rank(ABC):
    """One rank of a library."""

    def __init__(self, rank: int, ranks: int) -> None:
        """Has no buffers yet."""
        self.rank = rank
        self.ranks = ranks
        self.pair = buffer(0), buffer(0)
        self.ring: list[Pair] = []
        self.turn = 0
        self.total = 0

    def answer(self, request: Request) -> list[float]:
        """Returns wrong elements and the seconds of the iterations."""
        self.allocate(request)
        ways = {"waits": self.paused, "rows": self.rows}
        way = ways.get(request.pattern)
        numbers = self.slowest(self.time(request)) if way is None else way(request)
        wrong = 0.0
        if request.check:
            self.fill(request.collective)
            self.call(request.collective, *self.pair)()
            wrong = self.over_ranks([float(self.wrong(request.collective))])[0]
        return [wrong, *numbers]

    def allocate(self, request: Request) -> None:
        """Makes the buffers of a request, unless the last one had them; every page is written to."""
        if self.total != request.size:
            self.pair, self.ring = (buffer(request.size), buffer(request.size)), []
            self.total = request.size
            self.fill(request.collective)
        if request.pattern == "rotated" and len(self.ring) != request.pairs:
            count = request.size // 4
            every = buffer(2 * 4 * count * request.pairs).reshape(2 * request.pairs, count)
            every[:] = self.rank + 1
            self.ring = [(every[2 * i], every[2 * i + 1]) for i in range(request.pairs)]

    def pairs(self, request: Request) -> Iterator[Pair]:
        """Yields the buffers of each call."""
        for _ in range(request.warmup + request.iterations):
            if request.pattern == "rotated":
                self.turn += 1
                yield self.ring[self.turn % len(self.ring)]
            else:
                yield self.pair

    def fill(self, collective: str) -> None:
        """Sets every element of rank r's input to r + 1."""
        given, result = self.pair
        given[:] = self.rank + 1
        result[:] = self.rank + 1 if collective == "broadcast" else -1

    def wrong(self, collective: str) -> int:
        """Returns how many elements of the output are not what they must be."""
        result = self.parts(collective, *self.pair)[1]
        if collective in _REDUCE:
            return int((result != self.ranks * (self.ranks + 1) // 2).sum())
        if collective in _BLOCKS:
            expected = np.repeat(np.arange(1, self.ranks + 1), result.size // self.ranks)
            return int((result != expected).sum())
        return int((result != 1).sum())

    def time(self, request: Request) -> list[float]:
        """Returns the seconds of each iteration on this rank, called from Python."""
        seconds: list[float] = []
        for call in [self.call(request.collective, *pair) for pair in self.pairs(request)]:
            self.barrier()
            start = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - start)
        return seconds[request.warmup :]

    def rows(self, request: Request) -> list[float]:
        """Returns the seconds of a call in each iteration, where calls follow each other."""
        call = self.call(request.collective, *self.pair)
        self.barrier()
        ends = [time.monotonic()]
        for _ in range(request.warmup + request.iterations):
            for _ in range(_ROW):
                call()
            ends.append(time.monotonic())
        last = np.array(self.slowest(ends[request.warmup :]))
        return (np.diff(last) / _ROW).tolist()

    def paused(self, request: Request) -> list[float]:
        """Returns seconds for each iteration, then the mean processor time of all ranks for a call."""
        starts: list[float] = []
        ends: list[float] = []
        used = 0.0
        call = self.call(request.collective, *self.pair)
        self.barrier()
        for i, pause in zip(range(request.warmup + request.iterations), pauses(self.rank), strict=False):
            time.sleep(pause)
            before = time.process_time()
            starts.append(time.monotonic())
            call()
            ends.append(time.monotonic())
            used += time.process_time() - before if i >= request.warmup else 0
        both = np.array(self.slowest(starts[request.warmup :] + ends[request.warmup :])).reshape(2, -1)
        return [*(both[1] - both[0]).tolist(), self.over_ranks([used / request.iterations])[0]]

    def slowest(self, seconds: list[float]) -> list[float]:
        """Returns the maximum over the ranks of each number."""
        return self.over_ranks(seconds, largest=True)

    def parts(self, collective: str, x: Array, y: Array) -> Pair:
        """Returns the input and the output of a call, parts of the two buffers."""
        part = x.size // self.ranks
        even = part * self.ranks
        return {
            "allreduce": (x, y),
            "allgather": (x[:part], y[:even]),
            "reducescatter": (x[:even], y[:part]),
            "alltoall": (x[:even], y[:even]),
            "broadcast": (y, y),
        }[collective]

    @abstractmethod
    def call(self, collective: str, given: Array, result: Array) -> Callable[[], object]:
        """Returns the call of the library on two buffers."""

    @abstractmethod
    def barrier(self) -> None:
        """Waits for all ranks."""

    @abstractmethod
    def over_ranks(self, numbers: list[float], *, largest: bool = False) -> list[float]:
        """Returns the sum over the ranks of each number, or the largest."""


class Gc3(Rank):
    """gc3: its C++ engine alone, or through the Python interface."""

    def __init__(self, rank: int, ranks: int, folder: Path, table: str | None) -> None:
        """Joins the other ranks."""
        super().__init__(rank, ranks)
        from gc3 import _core  # noqa: PLC0415 - other libraries' environments lack it
        from gc3.comm import init  # noqa: PLC0415

        # On several hosts a launcher's variables say how they meet.
        launched = "GROUP_RANK" in os.environ
        self.comm = init(table=table) if launched else init(rank, ranks, job=str(folder), table=table)
        self.joined = _core.Joined.of(self.comm)

    def time(self, request: Request) -> list[float]:
        """Times the loop in C++ if that is the language of the request."""
        if request.language == "python":
            return super().time(request)
        name = request.collective
        in_place = name == "broadcast"
        given, result = self.parts(name, *self.pair)
        count = given.size // self.ranks if name == "alltoall" else min(given.size, result.size)
        ready = self.joined.find_program(name, count, "float32", in_place, 0)
        read = None if in_place and self.rank != 0 else given
        return self.joined.time_ready(ready, read, result, count, "float32", "sum", request.warmup, request.iterations)

    def call(self, collective: str, given: Array, result: Array) -> Callable[[], object]:
        """Returns the method of the communicator."""
        comm = self.comm
        x, y = self.parts(collective, given, result)
        return {
            "allreduce": lambda: comm.all_reduce(x, out=y),
            "allgather": lambda: comm.all_gather(x, out=y),
            "reducescatter": lambda: comm.reduce_scatter(x, out=y),
            "alltoall": lambda: comm.all_to_all(x, out=y),
            "broadcast": lambda: comm.broadcast(y),
        }[collective]

    def barrier(self) -> None:
        """Calls that of the communicator."""
        self.comm.barrier()

    def over_ranks(self, numbers: list[float], *, largest: bool = False) -> list[float]:
        """Calls all_reduce."""
        return self.comm.all_reduce(np.array(numbers), op="max" if largest else "sum").tolist()


class Gloo(Rank):
    """The backend that PyTorch uses on CPUs, called as PyTorch's users do."""

    def __init__(self, rank: int, ranks: int, folder: Path) -> None:
        """Joins the other ranks."""
        super().__init__(rank, ranks)
        self.torch: Any = import_module("torch")  # optional
        self.dist: Any = import_module("torch.distributed")
        self.torch.set_num_threads(1)
        self.dist.init_process_group(
            "gloo", store=self.dist.FileStore(str(folder / "store"), ranks), rank=rank, world_size=ranks
        )

    def call(self, collective: str, given: Array, result: Array) -> Callable[[], object]:
        """Returns the function of torch.distributed; all_reduce knows only in place."""
        dist = self.dist
        x, y = map(self.torch.from_numpy, self.parts(collective, given, result))
        if collective == "allreduce":
            y.copy_(x)
        return {
            "allreduce": lambda: dist.all_reduce(y),
            "allgather": lambda: dist.all_gather_into_tensor(y, x),
            "reducescatter": lambda: dist.reduce_scatter_tensor(y, x),
            "alltoall": lambda: dist.all_to_all_single(y, x),
            "broadcast": lambda: dist.broadcast(y, 0),
        }[collective]

    def barrier(self) -> None:
        """Calls that of torch.distributed."""
        self.dist.barrier()

    def over_ranks(self, numbers: list[float], *, largest: bool = False) -> list[float]:
        """Calls all_reduce."""
        tensor = self.torch.tensor(numbers, dtype=self.torch.float64)
        self.dist.all_reduce(tensor, self.dist.ReduceOp.MAX if largest else self.dist.ReduceOp.SUM)
        return tensor.tolist()


class Mpi(Rank):
    """MPI as mpi4py offers it for NumPy's arrays."""

    def __init__(self) -> None:
        """Joins the other ranks that mpirun has started."""
        self.mpi: Any = import_module("mpi4py.MPI")  # optional
        self.world: Any = self.mpi.COMM_WORLD
        super().__init__(self.world.rank, self.world.size)

    def call(self, collective: str, given: Array, result: Array) -> Callable[[], object]:
        """Returns the method of the communicator."""
        world = self.world
        x, y = self.parts(collective, given, result)
        return {
            "allreduce": lambda: world.Allreduce(x, y),
            "allgather": lambda: world.Allgather(x, y),
            "reducescatter": lambda: world.Reduce_scatter_block(x, y),
            "alltoall": lambda: world.Alltoall(x, y),
            "broadcast": lambda: world.Bcast(y, 0),
        }[collective]

    def barrier(self) -> None:
        """Calls that of the communicator."""
        self.world.Barrier()

    def over_ranks(self, numbers: list[float], *, largest: bool = False) -> list[float]:
        """Calls Allreduce."""
        result = np.empty(len(numbers))
        self.world.Allreduce(np.array(numbers), result, self.mpi.MAX if largest else self.mpi.SUM)
        return result.tolist()


def main(arguments: list[str]) -> None:
    """Answers requests until their pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the requesting process
    library, folder, *more = arguments
    place = Path(folder)
    own: Rank | None = Mpi() if library == "mpi4py" else None
    rank, ranks = (int(more[0]), int(more[1])) if own is None else (own.rank, own.ranks)
    # Without waiting for the other ends: that would last forever if the requesting process has ended.
    commands = os.open(place / f"command.{rank}", os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(commands, True)
    with open(commands) as requests, open(os.open(place / "answer", os.O_WRONLY | os.O_NONBLOCK), "w") as answers:
        if own is None:
            own = Gloo(rank, ranks, place) if library == "gloo" else Gc3(rank, ranks, place, (*more, None)[2])
        for line in requests:
            numbers = own.answer(Request.read(line))
            if rank == 0:
                answers.write(f"{int(numbers[0])} " + " ".join(f"{s:.9g}" for s in numbers[1:]) + "\n")
                answers.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
