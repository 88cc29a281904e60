"""A rank process of `gc3.spawn`: calls the function and answers with its result."""

from __future__ import annotations

import signal
import sys
import traceback
from multiprocessing.connection import Connection
from typing import Any

from gc3 import _core, errors
from gc3.comm.joining import init
from gc3.comm.objects import pickled, unpickled
from gc3.comm.spawn import Outcome, Task

_TOLD = ("RankLost", "Aborted", "NotMet", "RankFailed")  # names of errors that the failure of another rank causes


def run(task: Task) -> Outcome:
    """Returns the outcome of the task."""
    sys.path[:] = task.path
    try:
        fn, args, kwargs = unpickled(task.call)
        with init(task.rank, task.size, job=task.job, timeout=task.timeout, table=task.table) as comm:
            return Outcome(pickled(fn(comm, *args, **kwargs)))
    except BaseException as problem:
        return _failure(problem)


def _failure(problem: BaseException) -> Outcome:
    told = isinstance(problem, errors.Gc3Error) and problem.diagnostics[0].name in _TOLD
    # The first frame is run() above.
    frames = traceback.format_list(traceback.extract_tb(problem.__traceback__)[1:])
    kind = type(problem).__name__
    text = str(problem)
    try:
        cause = pickled(problem)
        unpickled(cause)
    except Exception:
        cause = None
    return Outcome(None, f"{kind}: {text}" if text else kind, "".join(frames).rstrip(), cause, told)


def main() -> None:
    """Serves the requests of the parent over the pipe that the command line names before the parent's process."""
    _core.die_with_parent(int(sys.argv[2]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C, and ends this process
    pipe: Connection[Any, Any]
    with Connection(int(sys.argv[1])) as pipe:
        try:
            task: Task = pipe.recv()
            outcome = run(task)
            sys.stdout.flush()
            sys.stderr.flush()
            pipe.send(outcome)
        except (EOFError, BrokenPipeError):
            sys.exit(1)  # the parent has ended


if __name__ == "__main__":
    main()
