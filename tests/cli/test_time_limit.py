"""The time limit of a command."""

from __future__ import annotations

import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator

import pytest

from gc3.support.alarm import alarm

pytestmark = pytest.mark.python_only


def take_time() -> None:
    """Longer than the limit."""
    until = time.monotonic() + 0.3
    while time.monotonic() < until:
        pass


class SlowToFree:
    """An object that takes longer to free than the limit."""

    def __del__(self) -> None:
        """Takes its time."""
        take_time()


def freed() -> None:
    """Frees such an object, and waits."""
    slow = [SlowToFree()]
    slow.clear()
    time.sleep(30)


class SlowSet(set[object]):
    """What a WeakSet keeps its references in."""

    def discard(self, element: object) -> None:
        """Takes its time."""
        take_time()
        super().discard(element)


def left_a_set() -> None:
    """Frees an element of a WeakSet, and waits."""
    kept: weakref.WeakSet[SlowToStart] = weakref.WeakSet()
    vars(kept)["data"] = SlowSet()
    element = SlowToStart()
    kept.add(element)
    del element
    time.sleep(30)


def noticed() -> None:
    """Frees an object whose end a callback waits for, and waits."""
    event = SlowToStart()
    reference = weakref.ref(event, lambda _: take_time())
    del event
    assert reference() is None
    time.sleep(30)


def ended() -> None:
    """Frees a generator that takes its time to end, and waits."""

    def steps() -> Iterator[int]:
        try:
            yield 1
        finally:
            take_time()

    for _ in steps():
        break
    time.sleep(30)


class SlowToStart(threading.Event):
    """What a thread tells that it runs."""

    def wait(self, timeout: float | None = None) -> bool:
        """Takes its time."""
        take_time()
        return super().wait(timeout)


def started() -> None:
    """Starts a thread, and waits."""
    thread = threading.Thread(target=int)
    vars(thread)["_started"] = SlowToStart()
    try:
        thread.start()
    except TimeoutError as problem:  # also right after the start, on its line
        if any(
            frame.f_code is threading.Thread.start.__code__ for frame, _ in traceback.walk_tb(problem.__traceback__)
        ):
            pytest.fail("the thread was left in the middle of its start")
        raise
    thread.join()
    time.sleep(30)


def busy() -> None:
    """Does not look at the time."""
    while True:
        pass


@pytest.mark.parametrize("work", [freed, left_a_set, noticed, ended, started, busy])
def test_a_limit_ends_a_command_wherever_it_is(work: Callable[[], None]) -> None:
    """Python would print what is raised while an object is freed, and go on; pytest fails on that."""
    with pytest.raises(TimeoutError), alarm(time.monotonic() + 0.1, TimeoutError):
        work()
