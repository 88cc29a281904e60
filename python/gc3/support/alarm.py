"""A time limit for code that does not look at the time."""

from __future__ import annotations

import math
import signal
import sys
import threading
import time
import weakref
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType

_SOON, _AGAIN = 0.001, 1.0  # seconds
_STARTS = threading.Thread.start.__code__
_FREES = {weakref.__file__, weakref.WeakSet[object].add.__code__.co_filename}


@contextmanager
def alarm(deadline: float, problem: type[Exception]) -> Generator[None, None, None]:
    """Raises `problem` at a time of `time.monotonic`, and again every second until the block ends.

    This interrupts code that does not check the time itself. It works only in the main thread of a process.
    """
    if deadline == math.inf or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(_signal: int, frame: FrameType | None) -> None:
        later = isinstance(sys.exc_info()[1], GeneratorExit)  # maybe: a generator that somebody closes is as good
        while frame is not None and not later:
            code = frame.f_code
            later = code.co_name == "__del__" or code.co_filename in _FREES or code is _STARTS
            frame = frame.f_back
        if not later:
            raise problem
        # Python drops what is raised while an object is freed. It takes a thread whose start is left in the middle for
        # one that could not be started.
        signal.setitimer(signal.ITIMER_REAL, _SOON, _AGAIN)

    def dropped(what: sys.UnraisableHookArgs) -> None:  # by a callback that no frame names
        if what.exc_type is problem:
            signal.setitimer(signal.ITIMER_REAL, _SOON, _AGAIN)
        else:
            hook(what)

    hook, sys.unraisablehook = sys.unraisablehook, dropped
    usual = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, max(deadline - time.monotonic(), _SOON), _AGAIN)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, usual)
        sys.unraisablehook = hook
