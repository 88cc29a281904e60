"""Ctrl-C ends long work of the core, and programs that no target can hold are refused early."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import gc3
from gc3 import _core, errors, sim
from gc3.algorithms import load
from gc3.lang import SourceProgram, chunk, dump

_EVERY_S = 0.0005
_OFTEN = 3


@cache
def program() -> gc3.Program:
    return gc3.compile(load("ring_allreduce"), R=4, instances=20000)


@cache
def wide() -> SourceProgram:
    """A program whose postcondition has a million places."""
    source = SourceProgram("wide", "broadcast", ranks=2, chunks=1 << 20)
    with source:
        for rank in (0, 1):
            chunk(0, "in", 0, 1 << 20).copy(rank, "out", 0)
    return source


def simulation(sharing: str, instances: int, size: int) -> Callable[[], Any]:
    made = gc3.compile(load("ring_allreduce"), R=4, instances=instances)
    on = sim.Simulation(made, sim.platform("ring:R=4"))
    return lambda: on.run(size, sharing=sharing)


def reading(folder: Path) -> Callable[[], Any]:
    program().save(folder / "p.xml")
    return lambda: gc3.Program.load(folder / "p.xml")


def compiling() -> Callable[[], Any]:
    traced = load("ring_allreduce").write(R=4).trace()
    return lambda: _core.compile(traced, 8000)


# By name, the preparation of the work; only the work itself is measured.
WORK: dict[str, Callable[[Path], Callable[[], Any]]] = {
    "compile": lambda _: compiling(),
    "dump": lambda _: lambda: dump(load("ring_allreduce"), "instructions", R=4, instances=8000),
    "check": lambda _: wide().check,
    "verify": lambda _: program().verify,
    "XML": reading,
    "simulate": lambda _: simulation("serial", 8000, 1 << 24),
    "simulate, max-min": lambda _: simulation("max-min", 256, 1 << 20),
}


class Stop(Exception):  # noqa: N818  nobody's error
    """Raised by the handler of a signal."""


@contextmanager
def alarms(handler: Callable[[int, Any], None]) -> Generator[None, None, None]:
    """Calls a handler every half a millisecond, whenever signals are checked."""
    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, _EVERY_S, _EVERY_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# Under sanitizers two of them: the others ask by the same function, at more places of long loops.
SANITIZED = ("check", "verify")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in SANITIZED else [pytest.mark.python_only]) for name in WORK]
)
def test_long_work_of_the_core_looks_for_signals(name: str, tmp_path: Path) -> None:
    """Signals that arrive without a check count as one: the handler would run once, at the end of the call."""
    work = WORK[name](tmp_path)
    seen: list[int] = []
    with alarms(lambda *_: seen.append(1)):
        work()
    assert len(seen) > _OFTEN

    def stop(*_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        raise Stop

    with pytest.raises(Stop), alarms(stop):
        work()
    work()  # as well as before


def test_a_pipe_that_says_nothing_is_left_at_a_signal(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    end = os.open(tmp_path / "pipe", os.O_RDWR)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.2, signal.raise_signal, [signal.SIGINT])
    try:
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - on a slow machine it may come before the second line
            timer.start()
            gc3.Program.load(tmp_path / "pipe")
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)
        os.close(end)


@pytest.mark.parametrize(
    ("name", "settings", "text"),
    [
        ("ring_allreduce", {"R": 4, "instances": 1_000_000}, "1000000 instances"),
        ("ring_allreduce", {"R": 64, "instances": 60_000}, "parallel parts"),
        ("hierarchical_alltoall", {"N": 512, "G": 8}, "33554432 chunks in all inputs and outputs"),
    ],
)
def test_programs_too_large_for_any_target_are_refused_first(name: str, settings: dict[str, Any], text: str) -> None:
    with pytest.raises(errors.UserError, match=text) as caught:
        gc3.compile(load(name), **settings)
    assert caught.value.code == "GC3-C002"
