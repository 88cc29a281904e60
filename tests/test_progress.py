"""Calls that go on meanwhile: their order, their ends, and what they hold on to."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Iterator

import pytest

from gc3 import errors
from gc3.comm.progress import Progress


class Asked:
    """Counts how often a call was given up, and ends it."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.times = 0
        self.ended = threading.Event()

    def __call__(self) -> None:
        """Gives up."""
        self.times += 1
        self.ended.set()


@pytest.fixture
def asked() -> Asked:
    return Asked()


@pytest.fixture
def progress(asked: Asked) -> Iterator[Progress]:
    made = Progress()
    yield made
    asked.ended.set()
    made.stop(asked, at_once=False)


def test_calls_run_in_order_and_a_failure_is_its_own_calls_alone(progress: Progress, asked: Asked) -> None:
    order: list[int] = []

    def call(number: int) -> int:
        order.append(number)
        if number == 1:
            raise errors.error("Timeout", "the second")
        return number * 10

    handles = [progress.start(lambda n=n: call(n), asked) for n in range(4)]
    assert [handles[n].wait() for n in (0, 2, 3)] == [0, 20, 30]
    with pytest.raises(errors.CommError, match="the second"):
        handles[1].wait()
    assert order == [0, 1, 2, 3]
    assert all(handle.test() for handle in handles)
    assert not progress.busy


def test_settling_waits_for_what_fails_and_leaves_the_failure_to_its_handle(progress: Progress, asked: Asked) -> None:
    def fail() -> None:
        time.sleep(0.05)
        raise errors.error("Timeout", "too late")

    progress.settle()  # nothing to wait for
    handle = progress.start(fail, asked)
    progress.settle()
    assert handle.test()
    with pytest.raises(errors.CommError, match="too late"):
        handle.wait()


def test_arrays_of_a_call_are_let_go_when_it_is_done(progress: Progress, asked: Asked) -> None:
    class Data:
        pass

    data = Data()
    watched = weakref.ref(data)
    handle = progress.start(lambda data=data: data is not None, asked)
    del data
    assert handle.wait()
    del handle
    for _ in range(500):  # the thread lets go after it has said that the call is done
        if watched() is None:
            break
        time.sleep(0.01)
    assert watched() is None


def test_stopping_at_once_gives_up_what_is_under_way_and_nothing_else(asked: Asked) -> None:
    idle = Progress()
    idle.stop(asked, at_once=True)  # no call was ever started
    assert idle.start(lambda: 1, asked).wait() == 1
    idle.stop(asked, at_once=True)
    assert asked.times == 0
    busy = Progress()
    busy.start(asked.ended.wait, asked)
    busy.stop(asked, at_once=True)
    assert asked.times == 1


def test_stopping_waits_for_the_calls_that_were_started(asked: Asked) -> None:
    progress = Progress()
    done: list[int] = []
    for n in range(3):
        progress.start(lambda n=n: (time.sleep(0.02), done.append(n)), asked)
    progress.stop(asked, at_once=False)
    assert done == [0, 1, 2]
    assert asked.times == 0
