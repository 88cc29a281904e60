"""Threads and processes that the system does not start."""

# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
from __future__ import annotations

import errno
import os
import subprocess
import threading

import pytest
from click.testing import CliRunner

import gc3
from gc3.cli.main import main
from gc3.comm.pmi import _within  # pyright: ignore[reportPrivateUsage]
from gc3.support.at_once import at_once
from gc3.topologies.probe import probe
from gc3.torch.lane import Lane

pytestmark = pytest.mark.python_only


class System:
    """What starts so many threads and then no more."""

    def __init__(self) -> None:
        """Starts none."""
        self.left = 0
        self.refused = threading.Event()

    def start(self, thread: threading.Thread) -> None:
        """Starts a thread, or not."""
        self.left -= 1
        if self.left < 0:
            self.refused.set()
            raise RuntimeError("can't start new thread")
        _start(thread)


_start = threading.Thread.start


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> System:
    """Starts no thread."""
    made = System()
    monkeypatch.setattr(threading.Thread, "start", lambda thread: made.start(thread))  # noqa: PLW0108  a method
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    return made


@pytest.mark.usefixtures("system")
def test_a_command_says_it() -> None:
    result = CliRunner().invoke(main, ["topo", "probe", "--cpu", "--measure"])
    assert result.exit_code == 1
    assert "GC3-R013" in result.stderr
    assert "can't start new thread" in result.stderr
    assert "`ulimit -u`" in result.stderr


@pytest.mark.parametrize("some", [0, 1])
def test_work_on_several_cores(some: int, system: System) -> None:
    before = set(threading.enumerate())  # with those of other tests
    system.left = some
    with pytest.raises(gc3.UserError, match="a thread for work on several cores: can't start new thread"):
        list(at_once(lambda _: system.refused.wait(), (1, 2, 3)))
    system.left = some
    with pytest.raises(gc3.UserError, match="a thread that copies on a core"):
        probe(gpus=False, measure=True)
    assert set(threading.enumerate()) <= before


def test_calls_of_libraries(system: System) -> None:
    lane = Lane()
    for _ in range(2):
        with pytest.raises(gc3.UserError, match="the thread of a process group's calls"):
            lane.put(print)
    assert lane.idle
    lane.settle()
    system.left = 1
    lane.put(lambda: None).result()
    lane.stop()
    with pytest.raises(gc3.UserError, match="a thread for a call of the launcher's PMIx"):
        _within(1.0, lambda: 0)


def test_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(subprocess, "Popen", refuse)
    with pytest.raises(gc3.UserError, match="the process of rank 0: Resource temporarily unavailable; the number"):
        gc3.spawn(lambda comm: comm.rank, 2)
    result = CliRunner().invoke(main, ["run", "ring_allreduce:R=2", "--engine", "processes", "--size", "1KiB"])
    assert result.exit_code == 1
    assert "the process of rank 0" in result.stderr
