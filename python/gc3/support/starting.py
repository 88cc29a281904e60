"""Threads and processes that the system may refuse to start."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from gc3 import errors


@contextmanager
def starting(what: str) -> Generator[None, None, None]:
    """Is around the start of a thread or a process, called `what`.

    Raises:
        gc3.UserError: There can be no more of them.
    """
    try:
        yield
    except (RuntimeError, OSError) as problem:
        raise refused(what, problem) from problem


def start_thread(what: str, work: Callable[..., object], *arguments: Any) -> None:
    """Starts a thread, for which the interpreter waits when it ends.

    Raises:
        gc3.UserError: There can be no more of them.
    """
    with starting(what):
        threading.Thread(target=work, args=arguments, daemon=False).start()  # in a thread of C++ it would be one


def refused(what: str, problem: RuntimeError | OSError) -> errors.Gc3Error:
    """Returns the error of a thread or a process that was not started."""
    why = problem.strerror if isinstance(problem, OSError) else str(problem)
    limits = "the number of threads and processes is limited by `ulimit -u` and by a container's pids.max"
    return errors.error("SystemRefused", f"{what}: {why}; {limits}")
