"""Ctrl-C while modules are imported, and the time limit of a command."""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType

INTERRUPTED = 130

_SOON, _AGAIN = 0.001, 1.0  # seconds


def leave() -> None:
    """Ends the process at once, as interrupted."""
    os.write(2, b"interrupted\n")
    os._exit(INTERRUPTED)


@contextmanager
def loading() -> Generator[None, None, None]:
    """Lets Ctrl-C end the process at once: a library interrupted during its import may take it for its own failure."""
    usual = signal.getsignal(signal.SIGINT)
    if usual is not signal.default_int_handler or threading.current_thread() is not threading.main_thread():
        yield  # the caller handles signals
        return
    signal.signal(signal.SIGINT, lambda _signal, _frame: leave())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)


@contextmanager
def alarm(deadline: float, problem: type[Exception]) -> Generator[None, None, None]:
    """Raises `problem` at a time of `time.monotonic`, and again every second until the block ends.

    This interrupts code that does not check the time itself. It works only in the main thread of a process.
    """
    if deadline == math.inf or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(_signal: int, frame: FrameType | None) -> None:
        freed = isinstance(sys.exc_info()[1], GeneratorExit)  # maybe: a generator that somebody closes is as good
        while frame is not None and not freed:
            freed = frame.f_code.co_name == "__del__" or frame.f_code.co_filename == weakref.__file__
            frame = frame.f_back
        if not freed:
            raise problem
        # Python drops what is raised while an object is freed, and prints it.
        signal.setitimer(signal.ITIMER_REAL, _SOON, _AGAIN)

    usual = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, max(deadline - time.monotonic(), _SOON), _AGAIN)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, usual)
