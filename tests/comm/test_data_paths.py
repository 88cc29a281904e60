"""How large messages move between processes: read from the sender's memory, or copied through shared memory."""

from __future__ import annotations

import os

import pytest

import gc3
import ranks

COPIED = "messages are copied through shared memory"


def test_without_single_copies_messages_are_copied() -> None:
    code = "with gc3.init() as comm: assert comm.all_reduce(np.ones(200_000)).sum() == n * 200_000"
    ranks.run(code, 3, {"GC3_SINGLE_COPY": "0"})


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "; measured, in us by shared memory and by reading: 8 KiB "),
        ({"GC3_PROBE": "0"}, "messages are read from the sender's memory from "),
        ({"GC3_SINGLE_COPY": "0"}, COPIED),
    ],
)
def test_the_way_of_messages_between_processes_is_explained(settings: dict[str, str], said: str) -> None:
    code = 'with gc3.init() as comm: told = comm.explain("allreduce", 10); print(told.processes); print(told)'
    for text in ranks.run(code, 2, settings):
        path, explained = text.split("\n", 1)
        assert path in explained
        assert said in path or path == COPIED  # that is all where the system forbids reading


WAITS = """
from gc3.algorithms import load
with gc3.init() as comm:
    comm.load(gc3.compile(load("ring_allreduce"), R=n, in_place=False), max_size=4096)
    for turn in range(20):
        for count in (100, 10_000):  # by the loaded program, and by the table
            assert (comm.all_reduce(np.full(count, r)) == n * (n - 1) // 2).all()
        assert (comm.all_to_all(np.arange(40_000) + turn)[:1] == r * 10_000 + turn).all()
        assert comm.broadcast(np.full(300_000, r), root=turn % n)[-1] == turn % n
        comm.barrier()
    print(comm.explain("allreduce", 10).waits)
"""


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("spin", "spins, as told"),
        ("yield", "yields the core at once, as told"),
        ("block", "sleeps at once, as told"),
    ],
)
def test_results_are_right_however_ranks_wait(mode: str, said: str) -> None:
    assert ranks.run(WAITS, 4, {"GC3_WAIT": mode}) == [said + "\n"] * 4


def test_waits_are_explained_and_told_by_init() -> None:
    code = """
with gc3.init(wait="block" if r else None) as comm:
    told = comm.explain("allreduce", 10)
assert told.waits in str(told)
print(told.waits)
"""
    first, second = ranks.run(code, 2)
    assert first.startswith(("spins, then yields the core: a core for each", "yields the core at once: more ranks"))
    assert second == "sleeps at once, as told\n"


def test_an_unknown_way_to_wait_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(gc3.UserError, match=r"wait='nap' .*expected auto, spin, yield or block"):
        gc3.init(rank=0, size=1, job=f"wait {os.getpid()}", wait="nap")
    monkeypatch.setenv("GC3_WAIT", "doze")
    with pytest.raises(gc3.UserError, match=r"wait='doze' \(GC3_WAIT\)"):
        gc3.init(rank=0, size=1, job=f"wait {os.getpid()}")
