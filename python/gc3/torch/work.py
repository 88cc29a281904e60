"""What a call of the backend returns: an object that PyTorch waits for."""

from __future__ import annotations

import threading
import time
from concurrent import futures
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed import DistBackendError

from gc3 import _core, errors
from gc3.support.starting import refused

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gc3.torch.lane import Lane

NO_LIMIT = timedelta(0)
_LOOK = 0.05  # seconds


def as_torch(problem: errors.Gc3Error) -> DistBackendError:
    """Returns an error of gc3 as the one that scripts for PyTorch expect, with the whole text."""
    made = DistBackendError(str(problem))
    made.__cause__ = problem
    return made


def fork_error() -> DistBackendError:
    """Returns the error of a call in a fork, which does not have the threads of the process group."""
    return as_torch(errors.error("UsedAfterFork", "the process group belongs to the process that has made it"))


def thread_error() -> DistBackendError:
    """Returns the error of a call that needs a thread, and the system starts none."""
    return as_torch(refused("a thread of the process group", RuntimeError("can't start new thread")))


def destroyed_error() -> DistBackendError:
    """Returns the error of a call after the process group was left."""
    return DistBackendError("the process group has been destroyed")


def late_error(seconds: float) -> DistBackendError:
    """Returns the error of a wait that ends before the call."""
    return DistBackendError(f"the call has not ended after {seconds:g} s")


def size_error(rank: int, source: int, count: int, tag: int, expected: int) -> DistBackendError:
    """Returns the error for a message of another size than the tensor that receives it."""
    return DistBackendError(
        f"rank {source} has sent {count} elements with tag {tag} where rank {rank} receives {expected}: "
        "send and recv must have tensors of one size"
    )


class _Told:
    """A context in which errors of gc3 become those of PyTorch."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, problem: BaseException | None, trace: object) -> None:
        if isinstance(problem, errors.Gc3Error):
            raise as_torch(problem) from problem


told = _Told()


class Done(torch.distributed.Work):
    """A call that has ended before it returned."""

    def __init__(self, outputs: Sequence[torch.Tensor]) -> None:
        """Holds the tensors that the call has written."""
        super().__init__()
        self._outputs = list(outputs)

    def wait(self, timeout: timedelta = NO_LIMIT) -> bool:
        """Returns True."""
        return True

    def get_future(self) -> torch.futures.Future[Any]:
        """Returns a future that is done, with the tensors."""
        future: torch.futures.Future[Any] = torch.futures.Future()
        future.set_result(self._outputs)
        return future


class Started(torch.distributed.Work):
    """A call that another thread makes, after those that were started before."""

    def __init__(
        self, lane: Lane, running: futures.Future[None], outputs: Sequence[torch.Tensor], give_up: Callable[[], None]
    ) -> None:
        """Holds what the thread completes, the tensors that the call writes, and what ends the calls of all ranks."""
        super().__init__()
        self._lane = lane
        self._running = running
        self._outputs = list(outputs)
        self._give_up = give_up

    def wait(self, timeout: timedelta = NO_LIMIT) -> bool:
        """Returns True once the call has ended; raises its error, or one when `timeout` has passed.

        Ctrl-C makes the calls of all ranks fail, because no wait for this call will follow.
        """
        if self._lane.is_fork and not self._running.done():
            raise fork_error()
        self._lane.help(self._running)
        try:
            in_time = _ends_within(self._running, _seconds(timeout))
        except BaseException:
            if not self._running.done():
                self._give_up()
            raise
        if not in_time:
            raise late_error(timeout.total_seconds())
        self._running.result()
        return True

    def get_future(self) -> torch.futures.Future[Any]:
        """Returns a future of the tensors, or of the error."""

        def value(_: object) -> list[torch.Tensor]:
            self._running.result()
            return self._outputs

        ended, future = _ended_and(value)

        def end(_: object) -> None:
            ended.set_result(None)

        self._running.add_done_callback(end)
        return future


class Moving(torch.distributed.Work):
    """A send or receive."""

    def __init__(
        self,
        transfer: _core.Transfer,
        end: Callable[[_core.Status | None], None],
        follow: Callable[[Callable[[], None]], None],
    ) -> None:
        """Holds the transfer, what checks and copies what was received, once, and what runs a function in a thread."""
        super().__init__()
        self._follow = follow
        self._transfer = transfer
        self._end: Callable[[_core.Status | None], None] | None = end
        self._lock = threading.Lock()

    def wait(self, timeout: timedelta = NO_LIMIT) -> bool:
        """Returns True once the message is sent or received; raises its error, or one when `timeout` has passed."""
        with told:
            status = self._transfer.wait(_seconds(timeout))
        with self._lock:
            end, self._end = self._end, None
            if end is not None:
                end(status)
        return True

    def get_future(self) -> torch.futures.Future[Any]:
        """Returns a future without a value, or of the error."""
        problems: list[DistBackendError] = []

        def value(_: object) -> None:
            for problem in problems:
                raise problem

        ended, future = _ended_and(value)

        def complete() -> None:
            try:
                self.wait()
            except DistBackendError as problem:
                problems.append(problem)
            ended.set_result(None)

        self._follow(complete)
        return future


class All(torch.distributed.Work):
    """Several calls as one."""

    def __init__(self, parts: Sequence[torch.distributed.Work]) -> None:
        """Holds the calls."""
        super().__init__()
        self._parts = parts

    def wait(self, timeout: timedelta = NO_LIMIT) -> bool:
        """Returns True once all have ended."""
        for part in self._parts:
            part.wait(timeout)
        return True

    def get_future(self) -> torch.futures.Future[Any]:
        """Returns a future that is done when all are, with the values of all."""
        return torch.futures.collect_all([part.get_future() for part in self._parts])


def _ended_and(value: Callable[[object], object]) -> tuple[torch.futures.Future[Any], torch.futures.Future[Any]]:
    """Returns a future to be completed, and one that then has a value, or the error of the function that returns it.

    An error that Python sets in a future is a mere value for the C++ part of PyTorch, through which this one goes.
    """
    ended: torch.futures.Future[Any] = torch.futures.Future()
    return ended, ended.then(value)


def _seconds(timeout: timedelta) -> float | None:
    seconds = timeout.total_seconds()
    return seconds if seconds > 0 else None


def _ends_within(running: futures.Future[None], left: float | None) -> bool:
    """Waits; times in which this process has been stopped, as by a batch system, are not counted."""
    while left is None or left > 0:
        begun = time.monotonic()
        if futures.wait([running], None if left is None else min(left, _LOOK)).done:
            return True
        left = None if left is None else left - _core.Joined.counted(time.monotonic() - begun)
    return False
