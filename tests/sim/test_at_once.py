"""Work on all cores: its order, its errors, and its end before all is done."""

from __future__ import annotations

import os

import pytest

import gc3
from gc3.algorithms import load
from gc3.sim import Simulation, platform
from gc3.support.at_once import at_once

pytestmark = pytest.mark.python_only


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads are used on any machine."""

    def of_two(_: int) -> set[int]:
        return {0, 1}

    monkeypatch.setattr(os, "sched_getaffinity", of_two, raising=False)


def simulation() -> Simulation:
    return Simulation(gc3.compile(load("ring_allreduce"), R=8), platform("ndv4"))


def test_work_that_the_core_does_ends_with_the_generator() -> None:
    simulated = simulation()
    begun: list[int] = []

    def work(item: int) -> int:
        begun.append(item)
        while item:
            simulated.run(1 << 16)
        return item

    found = at_once(work, range(4))
    assert next(found) == 0
    found.close()  # would never end
    assert set(begun) <= {0, 1, 2}
    assert simulated.run(1 << 16).time_s > 0  # only those threads are stopped


def test_an_error_ends_the_others_and_is_raised() -> None:
    simulated = simulation()

    def work(item: int) -> int:
        while item == 1:
            simulated.run(1 << 16)
        raise ValueError(item)

    with pytest.raises(ValueError, match="0"):
        list(at_once(work, (0, 1)))


def test_results_are_in_order() -> None:
    simulated = simulation()
    sizes = [1 << 24, 1 << 10, 1 << 20, 1 << 12]
    assert [p.size for p in at_once(simulated.run, sizes)] == sizes
