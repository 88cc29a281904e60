"""Ctrl-C while modules are imported."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager

INTERRUPTED = 130


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
