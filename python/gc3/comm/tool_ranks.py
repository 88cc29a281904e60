"""Rank processes started by a tool: `gc3 run --engine processes` and `gc3 bench --engine processes`.

The parent keeps all the data in memory that it shares with the ranks, so it can check a run like one of threads.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import secrets
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import reduction
from multiprocessing.connection import Connection, Pipe, wait
from typing import TYPE_CHECKING, Any

import numpy as np

from gc3 import datatypes, errors
from gc3.comm import arrays
from gc3.runtime import recording
from gc3.runtime.buffers import Given, bind, operation
from gc3.runtime.options import DEFAULT_OPTIONS, EngineOptions
from gc3.runtime.program import Program
from gc3.support import knobs
from gc3.support.starting import starting

if TYPE_CHECKING:
    import numpy.typing as npt
    from typing_extensions import Unpack

    from gc3.datatypes import Array
    from gc3.runtime.recording import Recording

# No process can truncate memory that others have mapped, which would end them by a signal.
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


@dataclass(frozen=True, slots=True)
class Start:
    """The first message to a rank: its number and its program."""

    rank: int
    size: int
    job: str
    image: bytes
    slots: int
    slot_bytes: int
    thresholds: tuple[tuple[str, int | None], ...]
    timeout: float


@dataclass(frozen=True, slots=True)
class Work:
    """A request to a rank. The descriptor of the memory that it shares with the parent follows.

    The answer is a list of seconds. With `most` above 0 it is the FIFO slots and a recording of this many steps.
    """

    input: tuple[int, int] | None
    output: tuple[int, int] | None
    count: int
    dtype: str
    op: str
    factors: bytes  # of premulsum: this rank's
    warmup: int
    iterations: int
    most: int = 0


@dataclass(frozen=True, slots=True)
class Failure:
    """The answer of a rank that failed: a diagnostic, in parts that can be sent."""

    name: str
    message: str
    notes: tuple[str, ...]

    @staticmethod
    def of(problem: errors.Gc3Error) -> Failure:
        """Returns the failure for `problem`."""
        first = problem.diagnostics[0]
        return Failure(first.name, first.message, tuple(note.text for note in first.notes))


class Ranks:
    """One process per rank, all running one program; they end with this object or its process in any case."""

    def __init__(
        self,
        program: Program,
        options: EngineOptions = DEFAULT_OPTIONS,
        thresholds: tuple[tuple[str, int | None], ...] = (),
    ) -> None:
        """Starts the processes. `thresholds`: instead of the measured ones, see `gc3.comm.selection.Spec`."""
        program.check_proven(options.slots)
        self._program = program
        self._processes: list[subprocess.Popen[bytes]] = []
        self._pipes: list[Connection[Any, Any]] = []
        set_up = knobs.read()
        timeout = set_up.timeout if options.timeout is None else options.timeout
        image = program.stored.to_bytes()
        job = f"spawned by {os.getpid()} {secrets.token_hex(16)}"  # cannot be guessed
        try:
            for rank in range(program.ranks):
                ours, theirs = Pipe()
                with theirs:
                    worker = [sys.executable, "-m", "gc3.comm.tool_worker"]
                    command = [*worker, str(theirs.fileno()), str(os.getpid())]
                    # In a separate session: only this process handles Ctrl-C, and ends the ranks, also while they
                    # start.
                    with starting(f"the process of rank {rank}"):
                        started = subprocess.Popen(  # noqa: S603
                            command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, start_new_session=True
                        )
                    self._processes.append(started)
                self._pipes.append(ours)
                slots, slot_bytes = options.slots or set_up.slots, options.slot_bytes or set_up.slot_bytes
                ours.send(Start(rank, program.ranks, job, image, slots, slot_bytes, thresholds, timeout))
            self._answers()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Ranks:
        """Returns itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Ends the processes."""
        self.close()

    @property
    def processes(self) -> list[int]:
        """The process of each rank."""
        return [process.pid for process in self._processes]

    def time(
        self,
        inputs: Sequence[npt.ArrayLike | None],
        *,
        warmup: int = 5,
        iterations: int = 20,
        **given: Unpack[Given],
    ) -> list[float]:
        """Like `Program.time`, until the slowest rank ends."""
        seconds = self._work(inputs, given, warmup, iterations)
        return [max(of_ranks) for of_ranks in zip(*seconds, strict=True)]

    def record(
        self, inputs: Sequence[npt.ArrayLike | None], *, most: int, warmup: int = 5, **given: Unpack[Given]
    ) -> Recording:
        """Like `Program.record`, with each rank recording its part of the steps."""
        errors.whole(most, "most", 1)
        errors.whole(warmup, "warmup")
        share = max(most // self._program.ranks, 1)
        found = self._work(inputs, given, warmup, 0, share)
        return recording.join(self._program.core, "processes", found[0][0], [part for _, part in found])

    def _work(self, inputs: Sequence[npt.ArrayLike | None], given: Given, *repeat: int) -> list[Any]:
        """Sends a request to all ranks and returns their answers; the last fields of `Work` are its options."""
        bound = bind(self._program.collective, inputs, given.get("outputs"), given.get("count"), given.get("dtype"))
        model = self._program.collective
        ops = [operation(given.get("op", "sum"), model, bound.dtype, rank) for rank in range(model.ranks)]
        shared = [_Shared(given, result) for given, result in zip(bound.inputs, bound.outputs, strict=True)]
        try:
            for pipe, memory, op in zip(self._pipes, shared, ops, strict=True):
                how = bound.count, bound.dtype, op.name, op.factors
                pipe.send(Work(memory.input, memory.output, *how, *repeat))
                reduction.send_handle(pipe, memory.file, None)
            answers = self._answers()
            for memory, result in zip(shared, bound.outputs, strict=True):
                memory.fetch(result)
        finally:
            for memory in shared:
                memory.close()
        bound.finish()
        return answers

    def close(self) -> None:
        """Ends the processes, at once if they are busy."""
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            try:
                process.wait(0.5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _answers(self) -> list[Any]:
        """The answers of all ranks; raises the first failure if there is one."""
        answers: list[Any] = [[] for _ in self._pipes]
        waiting = list(self._pipes)
        while waiting:
            for ready in wait(waiting):
                rank = next(r for r, pipe in enumerate(self._pipes) if pipe is ready)
                try:
                    answer = self._pipes[rank].recv()
                except (EOFError, ConnectionResetError):
                    process = self._processes[rank]
                    ended = f"rank {rank} (process {process.pid}) has ended"
                    raise errors.error("RankLost", f"{ended} with status {process.wait()}") from None
                if isinstance(answer, Failure):
                    raise errors.error(answer.name, answer.message, notes=answer.notes)
                answers[rank] = answer
                waiting.remove(self._pipes[rank])
        return answers


def _as_bytes(array: Array | None) -> Array | None:
    return None if array is None or array.size == 0 else datatypes.as_bytes(array)


class _Shared:
    """The buffers of one rank in memory shared with the parent; buffers that alias there alias here."""

    def __init__(self, given: Array | None, result: Array | None) -> None:
        first, second = _as_bytes(given), _as_bytes(result)
        ahead = None if first is None or second is None else arrays.offset(first, second)
        self.input, self.output = None, None
        if ahead is not None and first is not None and second is not None:
            self.input = (max(ahead, 0), first.size)
            self.output = (max(-ahead, 0), second.size)
        else:
            self.input = None if first is None else (0, first.size)
            start = 0 if first is None else -(-first.size // mmap.PAGESIZE) * mmap.PAGESIZE
            self.output = None if second is None else (start, second.size)
        size = max((begin + length for begin, length in filter(None, (self.input, self.output))), default=1)
        self.file = os.memfd_create("gc3-data", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.file, size)
        fcntl.fcntl(self.file, fcntl.F_ADD_SEALS, SEALS)
        self._memory = mmap.mmap(self.file, size)
        for span, data in ((self.output, second), (self.input, first)):
            if span is not None and data is not None:
                self._view(span)[:] = data

    def fetch(self, result: Array | None) -> None:
        data = _as_bytes(result)
        if self.output is not None and data is not None:
            data[:] = self._view(self.output)

    def close(self) -> None:
        self._memory.close()
        os.close(self.file)

    def _view(self, span: tuple[int, int]) -> Array:
        return np.frombuffer(self._memory, np.uint8, span[1], span[0])
