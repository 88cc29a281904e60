"""The order of a group's calls in the backend in Python."""

from __future__ import annotations

import os
import queue
import threading
from concurrent import futures
from typing import TYPE_CHECKING

from gc3.support.starting import starting

if TYPE_CHECKING:
    from collections.abc import Callable


class _Task:
    """A call, and whether it has ended with all functions that its end calls."""

    def __init__(self, run: Callable[[], None]) -> None:
        self.run = run
        self.future: futures.Future[None] = futures.Future()
        self.ended = False


class Lane:
    """A thread that makes the calls that nobody waits for at once, in their order; it begins with the first one.

    The interpreter does not wait for the thread when it ends: `stop` does.
    """

    def __init__(self) -> None:
        """Without a thread."""
        self._process = os.getpid()
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._last: _Task | None = None
        self._helped: list[_Task] = []  # made within the end of another call, which has not returned yet
        self._thread: threading.Thread | None = None
        self.stopped = False  # there are no calls any more

    @property
    def idle(self) -> bool:
        """Whether all calls have ended, with what their ends have called."""
        return self._last is None or self._last.ended

    @property
    def inside(self) -> bool:
        """Whether this is the thread."""
        return self._thread is not None and self._thread.ident == threading.get_ident()

    @property
    def is_fork(self) -> bool:
        """Whether this process is a fork, which does not have the thread."""
        return os.getpid() != self._process

    def put(self, run: Callable[[], None]) -> futures.Future[None]:
        """Returns what is done once the call has ended."""
        if self._thread is None:
            thread = threading.Thread(target=self._serve, daemon=True, name="gc3 calls")
            with starting("the thread of a process group's calls"):
                thread.start()
            self._thread = thread
        self._last = task = _Task(run)
        self._tasks.put(task)
        return task.future

    def help(self, until: futures.Future[None]) -> None:
        """In the thread, where the end of a call waits for a later one: makes calls until that one is done."""
        while self.inside and not until.done():
            task = self._tasks.get()
            if task is None:  # `stop` waits already: for that call, too
                self._tasks.put(None)
            else:
                _make(task)
                self._helped.append(task)

    def settle(self) -> None:
        """Waits for all calls."""
        if self._last is not None:
            self.help(self._last.future)
            futures.wait([self._last.future])

    def stop(self) -> None:
        """Waits for all calls, and for the thread to end; not in a fork."""
        self.stopped = True
        if self._thread is not None and not self.inside and not self.is_fork:
            self._tasks.put(None)
            self._thread.join()

    def _serve(self) -> None:
        while (task := self._tasks.get()) is not None:
            _make(task)
            for ended in (task, *self._helped):
                ended.ended = True
            self._helped.clear()


def _make(task: _Task) -> None:
    try:
        task.run()
    except BaseException as problem:
        task.future.set_exception(problem)
    else:
        task.future.set_result(None)  # which calls the functions that wait for it
