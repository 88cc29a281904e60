"""A rank that answers requests like `mpi.c`, of gc3 itself or of Gloo in PyTorch.

python benchmarks/peers/rank.py LIBRARY FOLDER RANK RANKS [TABLE]

Every timed call follows a barrier, and the time of the slowest rank counts.
"""

from __future__ import annotations

import mmap
import os
import signal
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gc3.comm import init

if TYPE_CHECKING:
    from gc3.datatypes import Array

_REDUCE = ("allreduce", "reducescatter")
_BLOCKS = ("allgather", "alltoall")


def buffer(size: int) -> Array:
    """Returns `size` bytes of float32 in pages like those of malloc: NumPy would request huge ones, C does not."""
    memory = mmap.mmap(-1, max(size, 1), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return np.frombuffer(memory, np.float32, size // 4)


class Rank(ABC):
    """One rank of a library."""

    def __init__(self, rank: int, ranks: int) -> None:
        """Has no buffers yet."""
        self.rank = rank
        self.ranks = ranks
        self.given = self.result = buffer(0)
        self.total = 0

    def answer(self, collective: str, size: int, warmup: int, iterations: int, check: bool, mode: str) -> list[float]:
        """Returns wrong elements and the seconds of the iterations."""
        if self.total != size:
            self.given, self.result = buffer(size), buffer(size)
            self.total = size
            self.fill(collective)
        seconds = self.slowest(self.time(collective, warmup, iterations, mode))
        wrong = 0.0
        if check:
            self.fill(collective)
            self.call(collective)()
            wrong = self.slowest([float(self.wrong(collective))])[0]
        return [wrong, *seconds]

    def fill(self, collective: str) -> None:
        """Sets every element of rank r's input to r + 1."""
        self.given[:] = self.rank + 1
        self.result[:] = self.rank + 1 if collective == "broadcast" else -1

    def wrong(self, collective: str) -> int:
        """Returns how many elements of the output are not what they must be."""
        result = self.parts(collective)[1]
        if collective in _REDUCE:
            return int((result != self.ranks * (self.ranks + 1) // 2).sum())
        if collective in _BLOCKS:
            expected = np.repeat(np.arange(1, self.ranks + 1), result.size // self.ranks)
            return int((result != expected).sum())
        return int((result != 1).sum())

    def time(self, collective: str, warmup: int, iterations: int, mode: str) -> list[float]:
        """Returns the seconds of each iteration on this rank, called from Python."""
        del mode
        call = self.call(collective)
        seconds: list[float] = []
        for _ in range(warmup + iterations):
            self.barrier()
            start = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - start)
        return seconds[warmup:]

    def parts(self, collective: str) -> tuple[Array, Array]:
        """Returns the input and the output of a call, parts of the two buffers."""
        x, y, part = self.given, self.result, self.given.size // self.ranks
        even = part * self.ranks
        return {
            "allreduce": (x, y),
            "allgather": (x[:part], y[:even]),
            "reducescatter": (x[:even], y[:part]),
            "alltoall": (x[:even], y[:even]),
            "broadcast": (y, y),
        }[collective]

    @abstractmethod
    def call(self, collective: str) -> Callable[[], object]:
        """Returns the call of the library on the buffers."""

    @abstractmethod
    def barrier(self) -> None:
        """Waits for all ranks."""

    @abstractmethod
    def slowest(self, seconds: list[float]) -> list[float]:
        """Returns the maximum over the ranks of each number."""


class Gc3(Rank):
    """gc3: its C++ engine alone, or through the Python interface."""

    def __init__(self, rank: int, ranks: int, folder: Path, table: str | None) -> None:
        """Joins the other ranks."""
        super().__init__(rank, ranks)
        self.comm = init(rank, ranks, job=str(folder), table=table)

    def time(self, collective: str, warmup: int, iterations: int, mode: str) -> list[float]:
        """Times the loop in C++ unless the mode is "python"."""
        if mode == "python":
            return super().time(collective, warmup, iterations, mode)
        given, result = self.parts(collective)
        count = given.size // self.ranks if collective == "alltoall" else min(given.size, result.size)
        if collective == "broadcast" and self.rank != 0:
            given = None
        return self.comm.time(
            collective,
            count,
            in_place=collective == "broadcast",
            warmup=warmup,
            iterations=iterations,
            buffers=(given, result),
        )

    def call(self, collective: str) -> Callable[[], object]:
        """Returns the method of the communicator."""
        comm = self.comm
        x, y = self.parts(collective)
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

    def slowest(self, seconds: list[float]) -> list[float]:
        """Calls all_reduce."""
        return self.comm.all_reduce(np.array(seconds), op="max").tolist()


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

    def call(self, collective: str) -> Callable[[], object]:
        """Returns the function of torch.distributed; all_reduce knows only in place."""
        dist = self.dist
        x, y = map(self.torch.from_numpy, self.parts(collective))
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

    def slowest(self, seconds: list[float]) -> list[float]:
        """Calls all_reduce."""
        numbers = self.torch.tensor(seconds, dtype=self.torch.float64)
        self.dist.all_reduce(numbers, self.dist.ReduceOp.MAX)
        return numbers.tolist()


def main(arguments: list[str]) -> None:
    """Answers requests until their pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the requesting process
    library, folder, rank, ranks, *more = arguments
    place = Path(folder)
    own = (int(rank), int(ranks))
    # Without waiting for the other ends: that would last forever if the requesting process has ended.
    commands = os.open(place / f"command.{rank}", os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(commands, True)
    with open(commands) as requests, open(os.open(place / "answer", os.O_WRONLY | os.O_NONBLOCK), "w") as answers:
        served: Rank = Gloo(*own, place) if library == "gloo" else Gc3(*own, place, more[0] if more else None)
        for line in requests:
            collective, size, warmup, iterations, check, mode = line.split()
            numbers = served.answer(collective, int(size), int(warmup), int(iterations), check == "1", mode)
            if served.rank == 0:
                answers.write(f"{int(numbers[0])} " + " ".join(f"{s:.9g}" for s in numbers[1:]) + "\n")
                answers.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
