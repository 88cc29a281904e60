"""`gc3.spawn`: a function on new rank processes, from a script or a notebook."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from typing import TYPE_CHECKING, Any

from gc3 import errors
from gc3.comm.objects import pickled, unpickled
from gc3.support.public import misfit
from gc3.support.starting import starting

if TYPE_CHECKING:
    from collections.abc import Callable, Container

_GRACE_S = 2.0  # for the answer of the rank that failed first, after other ranks have reported its failure
_EXIT_TIMEOUT_S = 5.0  # for a rank to end by itself after its result


@dataclass(frozen=True, slots=True)
class Task:
    """The first message to a rank."""

    rank: int
    size: int
    job: str
    path: list[str]  # sys.path: where the modules that the function needs are found
    timeout: float | None
    table: str | None
    call: bytes  # function, arguments


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answer of a rank."""

    result: bytes | None  # pickled; None: it has failed
    problem: str = ""  # one line
    trace: str = ""
    cause: bytes | None = None  # the exception, pickled, if it can be
    told: bool = False  # whether it failed only because another rank had failed


def spawn(
    fn: Callable[..., Any],
    ranks: int,
    *args: Any,
    timeout: float | None = None,
    table: str | os.PathLike[str] | None = None,
    **kwargs: Any,
) -> list[Any]:
    """Starts rank processes, calls ``fn(comm, *args, **kwargs)`` in each, and returns the results by rank.

    The processes are new interpreters, not forks. `fn`, its arguments and its results are pickled with cloudpickle, so
    `fn` may be defined in a script, a notebook or another function. The output of the ranks appears where this process
    prints. All ranks have ended when this function returns or raises, also after Ctrl-C.

    Args:
        fn: The function of each rank; its first argument is the communicator.
        ranks: The number of ranks.
        args: Further arguments, the same for all ranks.
        timeout: See `gc3.init`.
        table: See `gc3.init`.
        kwargs: Further keyword arguments.

    Raises:
        gc3.CommError: A rank has failed. It has the first such rank and its traceback; its cause is the exception.
        gc3.UserError: `fn` or an argument cannot be pickled, or `ranks` is not a valid number of ranks.

    >>> import gc3
    >>> gc3.spawn(lambda comm: float(comm.all_reduce([1.0])[0]), 2)
    [2.0, 2.0]
    """
    if not callable(fn):
        raise errors.error("BadArgument", f"fn={fn!r}; expected a function of a communicator")
    if why := misfit(fn, "comm", *args, **kwargs):
        raise errors.error("BadArgument", f"fn is called with a communicator and the arguments of spawn: {why}")
    size = errors.whole(ranks, "ranks", 1)
    try:
        call = pickled((fn, args, kwargs))
    except Exception as problem:
        raise errors.error("BadObject", f"the function or an argument: {problem}") from problem
    job = f"spawned by {os.getpid()} {secrets.token_hex(16)}"  # cannot be guessed
    where = None if table is None else os.path.abspath(table)
    with _Processes(size) as processes:
        for rank in range(size):
            processes.start(Task(rank, size, job, sys.path, timeout, where, call))
        outcomes = processes.outcomes()
    return [unpickled(outcome.result) for outcome in outcomes if outcome.result is not None]


class _Processes:
    """The processes of the ranks, and the ends of their pipes. `close` ends all processes."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._ranks: list[subprocess.Popen[bytes]] = []
        self._pipes: list[Connection[Any, Any]] = []
        self._prints = _is_elsewhere()
        self._begun: dict[int, bytes] = {}  # by process: the beginning of a line whose end was not printed yet

    def __enter__(self) -> _Processes:
        return self

    def __exit__(self, *_: object) -> None:
        for pipe in self._pipes:
            pipe.close()
        for process in self._ranks:
            # Each leads a session, to which the processes belong that it has started.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if process.stdout is not None:
                while self._print(process):
                    pass
                process.stdout.close()

    def start(self, task: Task) -> None:
        ours, theirs = Pipe()
        with theirs, starting(f"the process of rank {task.rank}"):
            # In a separate session: only this process handles Ctrl-C, and ends the ranks.
            process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-m", "gc3.comm.spawned", str(theirs.fileno()), str(os.getpid())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if self._prints else None,
                stderr=subprocess.STDOUT if self._prints else None,
                start_new_session=True,
            )
        self._ranks.append(process)
        self._pipes.append(ours)
        if process.stdout is not None:
            os.set_blocking(process.stdout.fileno(), False)
        with suppress(BrokenPipeError):  # the rank has ended; outcomes() reports how
            ours.send(task)

    def outcomes(self) -> list[Outcome]:
        """The outcomes of all ranks; if a rank has failed, raises the error of the first one."""
        found: dict[int, Outcome] = {}
        told: tuple[int, Outcome] | None = None  # of a rank that failed because another one had failed
        until = float("inf")
        while len(found) < self._size:
            timeout = None if told is None else max(until - time.monotonic(), 0)
            for rank in self._ready(found, timeout):
                outcome = self._answer(rank)
                if outcome.result is None and not outcome.told:
                    raise _failed(rank, outcome)
                found[rank] = outcome
                if outcome.result is None and told is None:
                    told, until = (rank, outcome), time.monotonic() + _GRACE_S
            if told is not None and time.monotonic() >= until:
                break
        if told is not None:
            raise _failed(*told)
        for process in self._ranks:
            # Wait, because exit handlers may print, and delete files.
            with suppress(subprocess.TimeoutExpired):
                process.wait(_EXIT_TIMEOUT_S)
        return [found[rank] for rank in range(self._size)]

    def _ready(self, done: Container[int], timeout: float | None) -> list[int]:
        """The ranks that have answered or ended, after at most `timeout` seconds. Prints the output of the ranks."""
        answers = {pipe.fileno(): rank for rank, pipe in enumerate(self._pipes) if rank not in done}
        outputs = {p.stdout.fileno(): p for p in self._ranks if p.stdout is not None and not p.stdout.closed}
        files = [file for file in wait([*answers, *outputs], timeout) if isinstance(file, int)]
        for file in files:
            if file in outputs:
                self._print(outputs[file])
        return [answers[file] for file in files if file in answers]

    def _answer(self, rank: int) -> Outcome:
        try:
            return self._pipes[rank].recv()
        except (EOFError, ConnectionResetError):
            status = self._ranks[rank].wait()
            how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"has ended with status {status}"
            return Outcome(None, f"its process ({self._ranks[rank].pid}) {how} and gave no result")

    def _print(self, process: subprocess.Popen[bytes]) -> bool:
        """Prints the output of a process; returns whether there may be more at once."""
        if process.stdout is None or process.stdout.closed:
            return False
        try:
            data = os.read(process.stdout.fileno(), 1 << 16)
        except BlockingIOError:
            return False
        text = self._begun.pop(process.pid, b"") + data
        end = 1 + max(text.rfind(b"\n"), text.rfind(b"\r")) if data else len(text)
        self._begun[process.pid] = text[end:]
        if not data:
            process.stdout.close()
        sys.stdout.write(text[:end].decode(errors="replace"))
        sys.stdout.flush()
        return bool(data)


def _is_elsewhere() -> bool:
    """Whether this process prints to another place than its children would, as in a notebook."""
    try:
        return sys.stdout.fileno() != 1
    except (AttributeError, OSError, ValueError):
        return True


def _failed(rank: int, outcome: Outcome) -> errors.Gc3Error:
    problem = errors.error("RankFailed", f"rank {rank}: {outcome.problem}", notes=filter(None, [outcome.trace]))
    if outcome.cause is not None:
        with suppress(Exception):  # a class of the user may raise anything
            problem.__cause__ = unpickled(outcome.cause)
    return problem
