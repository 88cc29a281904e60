"""One-sided programs in `gc3 tune`: which sizes their rows serve, and how they are timed."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from gc3 import sim
from gc3.comm.selection import Table, parse
from gc3.comm.spec import Spec
from gc3.comm.world import WorldError
from gc3.tune import Goal, Measured, SimulatedTuner, Tuner, candidates, on_ranks, ranges, registered_ranges, table
from gc3.tune.timers import RankTimer, ThreadTimer

pytestmark = pytest.mark.python_only

A, B = (Spec(name, (("R", "ranks"),)) for name in ("allpairs_allreduce", "ring_allreduce"))


def measured(size: int) -> Measured:
    return Measured("allreduce", 4, size, in_place=False, times_us=((B, 4.0),), default=B, tried=3)


def test_one_sided_programs_have_rows_where_they_are_faster_on_registered_memory() -> None:
    direct = replace(A, memory="direct")
    sizes = (1 << 16, 1 << 18, 1 << 20, 1 << 22)
    times = ({direct: 1.0}, {direct: 2.0}, {direct: 9.0}, {})
    points = [
        replace(measured(size), registered_us=((B, 3.0), *found.items()))
        for size, found in zip(sizes, times, strict=True)
    ]
    points.append(replace(measured(sizes[-1]), collective="allgather"))  # on ordinary memory only
    (found,) = registered_ranges(points)
    assert (found.first, found.end, found.spec) == (1 << 16, 1 << 19, direct)
    rows = parse(json.dumps(table([found.row(), *(r.row() for r in ranges(points, sizes))])), "t.json")
    assert rows[0].note == f"tuned: 1 us (messages 3) at {1 << 16} B, 2 us (messages 3) at {1 << 18} B"
    choice = Table(rows).choose("allreduce", ranks=4, size=1 << 18, in_place=False)
    assert choice.row.spec == direct
    assert "on other memory: ring_allreduce" in str(choice.explanation)
    assert registered_ranges(points[2:]) == []


@pytest.mark.parametrize(
    ("sizes", "known", "served"),
    [
        ((1 << 10, 1 << 16, 1 << 26), (1, 2), [(1 << 16, 1 << 31)]),
        ((1 << 16, 1 << 18, 1 << 20), (0, 2), [(1 << 16, 1 << 17), (1 << 19, 1 << 21)]),
        ((1 << 18, 1 << 20, 1 << 22), (1,), [(1 << 19, 1 << 21)]),
        ((1 << 10, 1 << 12), (0, 1), []),
    ],
)
def test_one_sided_rows_serve_no_size_that_was_not_measured_on_registered_memory(
    sizes: tuple[int, ...], known: tuple[int, ...], served: list[tuple[int, int]]
) -> None:
    direct = replace(A, memory="direct")
    points = [measured(size) for size in sizes]
    for number in known:
        points[number] = replace(points[number], registered_us=((B, 3.0), (direct, 1.0)))
    assert [(found.first, found.end) for found in registered_ranges(points)] == served


@pytest.mark.parametrize("engine", ["processes", "threads", "sim"])
def test_one_sided_programs_of_a_table_are_timed_on_registered_memory(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were timed, and simulated, as messages on ordinary memory."""
    direct = replace(B, memory="direct", slots=4)  # one-sided programs have no slots
    row = {"collective": "allreduce", "program": direct.data()}
    (given,) = parse(json.dumps({"format": "gc3-selection-1", "rows": [row]}), "t.json")
    timed: list[tuple[Spec, str]] = []

    def seconds(_: object, __: object, spec: Spec, *given: object) -> tuple[float, ...]:
        timed.append((spec, str(given[2:3])))
        return (1.0 if spec.memory == "direct" else 2.0,)

    monkeypatch.setattr(RankTimer, "timed", seconds)
    monkeypatch.setattr(ThreadTimer, "seconds", lambda _, spec, *__, **___: seconds(0, 0, spec, 0, 0))
    monkeypatch.setattr(RankTimer, "variants", lambda *_: ())
    monkeypatch.setattr(on_ranks, "candidates", lambda *_, **__: (replace(A, protocol="LL"),))
    goal = Goal(("allreduce",), (8,), (1 << 16,), engine=engine, also=(given,))
    on = sim.platform("ndv4:N=1")
    tuner = SimulatedTuner(goal, on, most=2) if engine == "sim" else Tuner(goal)
    list(tuner.points())
    (point,) = tuner.found.points
    assert {spec.memory for spec, _ in point.times_us} == {"fifo"}
    of_row = {memory for spec, memory in timed if spec.algorithm == B.algorithm and spec.memory == "direct"}
    if engine == "processes":
        assert of_row == {"('direct',)"}
        assert [spec for spec, _ in point.registered_us][1:] == [replace(direct, slots=0)]
        assert not tuner.failed
    else:
        assert not of_row
        assert list(tuner.failed) == [str(direct)]


def test_a_timer_of_ordinary_memory_refuses_one_sided_programs() -> None:
    timer = RankTimer(2)
    with timer, pytest.raises(WorldError, match="registered memory"):
        timer.seconds(replace(B, memory="direct"), "allreduce", 1 << 18, 0, 1, in_place=False)


def test_a_search_tries_one_sided_programs_on_registered_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RankTimer, "renew", lambda _: None)  # to start the ranks once
    monkeypatch.setattr(on_ranks, "candidates", lambda *which, **how: candidates(*which, **how)[:6])
    tuner = Tuner(Goal(("alltoall",), (2,), (1 << 18,), seconds=0.002, time_limit=20))
    (point,) = tuner.points()
    (messages, _), *direct = point.registered_us
    assert messages == point.best[0]
    assert direct
    assert {spec.memory for spec, _ in direct} == {"direct"}
    assert not tuner.failed
    wrong = replace(B, memory="direct", parameters=(("R", "root"),))  # refused before a rank runs it
    timer = RankTimer(2)
    with timer, pytest.raises(WorldError):
        timer.on_registered_memory().seconds(wrong, "allreduce", 1 << 18, 0, 1, in_place=False)
