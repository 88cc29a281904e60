"""Calls that go on while the program does something else."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from functools import partial
from queue import SimpleQueue
from typing import Generic, TypeVar

from gc3 import errors

T = TypeVar("T")


class Handle(Generic[T]):
    """A call under way. Its arrays belong to it until it is done."""

    def __init__(self, future: Future[T], give_up: Callable[[], None]) -> None:
        """Made by the asynchronous methods of a communicator."""
        self._future = future
        self._give_up = give_up

    def wait(self, timeout: float | None = None) -> T:
        """Returns the result of the call once it is done.

        Args:
            timeout: Seconds; the call goes on when they have passed.

        Raises:
            gc3.CommError: A peer failed, or `timeout` has passed.
        """
        try:
            return self._future.result(timeout)
        except FutureTimeout:
            raise errors.error("Timeout", f"the call is not done after {timeout} s") from None
        except KeyboardInterrupt:
            self._give_up()  # nobody will wait for the call any more, on any rank
            raise

    def test(self) -> bool:
        """Returns whether the call is done, successfully or not."""
        return self._future.done()


class Progress:
    """Runs calls one after the other on a thread of its own, started by the first one.

    The interpreter does not wait for the thread when it ends: whether to is for `stop` to decide.
    """

    def __init__(self) -> None:
        """Starts nothing yet."""
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._last: Future[object] | None = None

    @property
    def busy(self) -> bool:
        """Whether a call that was started is not done yet."""
        return self._last is not None and not self._last.done()

    def start(self, call: Callable[[], T], give_up: Callable[[], None]) -> Handle[T]:
        """Queues a call."""
        future: Future[T] = Future()
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=_serve, args=(self._work,), name="gc3-progress", daemon=True)
                self._thread.start()
            self._work.put(partial(_do, future, call))
            self._last = future  # pyright: ignore[reportAttributeAccessIssue] - only asked whether it is done
        return Handle(future, give_up)

    def finished(self, result: T) -> Handle[T]:
        """Returns the handle of a call that is done already."""
        future: Future[T] = Future()
        future.set_result(result)
        return Handle(future, lambda: None)

    def settle(self) -> None:
        """Waits for the calls that were started, whether they go well or not."""
        if self._last is not None:
            self._last.exception()

    def stop(self, give_up: Callable[[], None], *, at_once: bool) -> None:
        """Ends the thread: after the calls that were started, or `at_once`, by giving up those that are not done.

        An interrupt while it waits gives up, too.
        """
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is None:
            return
        self._work.put(None)
        if thread is threading.current_thread():
            return  # the last one that held the communicator was a call
        try:
            if at_once and self.busy:
                give_up()
            thread.join()
        except KeyboardInterrupt:
            give_up()
            thread.join()
            raise


def _serve(work: SimpleQueue[Callable[[], None] | None]) -> None:
    while (call := work.get()) is not None:
        call()
        del call  # its arrays are the caller's again


def _do(future: Future[T], call: Callable[[], T]) -> None:
    try:
        future.set_result(call())
    except BaseException as problem:  # whoever waits gets it
        future.set_exception(problem)
