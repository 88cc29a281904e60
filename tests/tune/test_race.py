"""Races of programs: what the intervals hold, and that the winner is as good as is said, with seeded noise."""

from __future__ import annotations

import json
import math
import random
import statistics
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

import gc3.tune.point
from gc3.cli import tune as tune_command
from gc3.cli.main import main
from gc3.comm.spec import Spec
from gc3.comm.world import WorldError
from gc3.tune import Goal, Measured, Record, Search, Tuner, on_ranks, ranges
from gc3.tune.point import FAR, FINALISTS, Point
from gc3.tune.race import FEWEST_ROUNDS, MARGIN, MOST_ROUNDS, interval, race
from gc3.tune.timers import RankTimer

pytestmark = pytest.mark.python_only

RING = Spec("ring_allreduce", (("R", "ranks"),))
PLACE = ("allreduce", 2, 1024, False, 1.0)


def test_intervals_hold_the_median_as_often_as_they_say() -> None:
    draw = random.Random(1)  # noqa: S311
    for count in (6, 9, 20, 51):
        held = 0
        for _ in range(4000):
            ends = interval([draw.expovariate(1.0) for _ in range(count)])
            assert ends is not None
            held += ends[0] <= math.log(2) <= ends[1]
        assert held / 4000 >= 0.94
    assert interval([1.0] * 5) is None
    assert interval([1.0, 2.0], 0.5) == (1.0, 2.0)
    assert interval([], 0.5) is None


class Machine:
    """Times of programs on a machine with slow phases, interruptions and noise."""

    def __init__(self, seed: int, true: list[float], noise: float = 0.03) -> None:
        """Starts in a fast phase."""
        self.true, self.turns = true, [0] * len(true)
        self._draw, self._noise, self._phase = random.Random(seed), noise, 1.0  # noqa: S311

    def turn(self, program: int) -> float:
        """Times a program once."""
        self.turns[program] += 1
        if self._draw.random() < 0.05:
            self._phase = math.exp(0.6 * self._draw.random())
        interrupted = 1 + 2 * self._draw.random() if self._draw.random() < 0.1 else 1
        return self.true[program] * self._phase * interrupted * math.exp(self._draw.gauss(0, self._noise))


@pytest.mark.parametrize(("spread", "noise"), [(0.1, 0.03), (0.02, 0.03), (0.5, 0.03), (0.1, 0.1), (0.1, 0.01)])
def test_the_winner_is_as_good_as_is_said(spread: float, noise: float) -> None:
    """In at least 95 of 100 races, though the winner is chosen from the same turns."""
    draw = random.Random(2)  # noqa: S311
    wrong, losses = 0, list[float]()
    for seed in range(300):
        machine = Machine(seed, [1 + spread * draw.random() for _ in range(8)], noise)
        found = race(range(8), machine.turn)
        assert found is not None
        assert found.within is not None
        assert min(found.seconds, key=found.seconds.__getitem__) == found.winner
        losses.append(machine.true[found.winner] / min(machine.true) - 1)
        wrong += losses[-1] > found.within
    assert wrong / 300 <= 0.05
    assert statistics.median(losses) <= 0.01


def test_programs_that_cannot_win_have_no_further_turns() -> None:
    machine = Machine(3, [1.0, 1.5, 1.2, 3.0])
    found = race(range(4), machine.turn)
    assert found is not None
    assert (found.winner, found.within) == (0, 0.0)
    assert machine.turns[3] < FEWEST_ROUNDS
    assert max(machine.turns) < MOST_ROUNDS
    # Without noise the fewest rounds suffice, and equal programs are equal.
    for true in ([1.0, 1.0], [1.0, 1.0 - MARGIN / 2], [1.0]):
        times = dict(enumerate(true))
        found = race(times, times.__getitem__)
        assert found is not None
        assert len(found.turns[found.winner]) == FEWEST_ROUNDS
        assert found.within is not None
        assert found.within <= MARGIN


def test_a_slow_phase_hits_all_alike() -> None:
    """Times of those that are out early, or were timed in a slow phase, are compared with the same rounds."""
    rounds = [0, 0]

    def turn(program: int) -> float:
        rounds[program] += 1
        return (3.0 if rounds[program] < 4 else 1.0) * (1 + program)

    found = race([0, 1], turn, kept=[1])
    assert found is not None
    assert found.winner == 0
    assert found.seconds == {0: 2.0, 1: 4.0}
    assert found.intervals == {0: (1.0, 3.0), 1: (4.0, 4.0)}
    rounds = [0, 0]
    found = race([0, 1], turn)
    assert found is not None
    assert len(found.turns[1]) == 2
    assert found.seconds[1] == 2 * found.seconds[0]
    assert found.intervals[1] is None


def test_races_that_end_early() -> None:
    starts: list[int] = []
    found = race([1, 2], float, goes_on=lambda: False, renew=lambda: starts.append(1))
    assert found is not None
    assert len(starts) == 1
    draw = random.Random(6)  # noqa: S311
    race([1.0, 1.0001], lambda _: draw.random(), renew=lambda: starts.append(2))
    assert starts == [1, 2, 2]  # a long race is one of ranks that have started twice
    assert (found.turns, found.winner, found.within) == ({1: [1.0], 2: [2.0]}, 1, None)
    found = race([1, 2], lambda program: None if program == 1 else 2.0)
    assert found is not None
    assert (list(found.turns), found.winner, found.within) == ([2], 2, 0.0)
    assert race([1, 2], lambda _: None) is None
    # The last that is left cannot be timed any more: what others are kept for remains.
    count = [0]

    def breaks(program: int) -> float | None:
        count[0] += program == 1
        return None if program == 1 and count[0] > 3 else float(program)

    found = race([1, 2], breaks, kept=[2])
    assert found is not None
    assert found.winner == 2


def test_what_is_out_early_is_not_faster_than_the_winner() -> None:
    """Program 2 is out after two rounds in which program 0 was faster, and program 1, which wins later, slower."""
    counts = [0, 0, 0]

    def turn(program: int) -> float:
        counts[program] += 1
        return (1.0, {1: 4.0, 2: 1.2}.get(counts[1], 0.5), 1.3)[program]

    found = race(range(3), turn)
    assert found is not None
    assert (found.winner, len(found.turns[2])) == (1, 2)
    assert list(found.seconds) == [1, 0, 2]
    assert found.seconds == {1: 0.5, 0: 1.0, 2: 0.5}
    assert found.intervals[2] is None


def test_what_is_kept_may_win_though_it_was_out() -> None:
    counts = [0, 0]

    def turn(program: int) -> float:
        counts[program] += 1
        return (1.0, 4.0 if counts[1] <= 2 else 0.5)[program]

    found = race(range(2), turn, kept=[1])
    assert found is not None
    assert (found.winner, found.seconds[1]) == (1, 0.5)
    found = race(range(2), lambda program: (1.0, 4.0)[program], kept=[1])
    assert found is not None
    assert (found.winner, found.within, len(found.turns[1])) == (0, 0.0, FEWEST_ROUNDS)


@pytest.mark.parametrize("kept", [(), (2,)])
def test_if_a_program_fails_what_it_has_beaten_races_again(kept: tuple[int, ...]) -> None:
    count, rounds = [0], list[int]()

    def turn(program: int) -> float | None:
        count[0] += program == 0
        rounds.append(program)
        return None if program == 0 and count[0] > 3 else (1.0, 3.0, 4.0)[program]

    found = race(range(3), turn, kept=kept)
    assert found is not None
    assert (found.winner, list(found.turns)) == (1, [1, 2])
    assert rounds.count(1) == 2 + FEWEST_ROUNDS
    assert len(found.turns[1]) == FEWEST_ROUNDS


def test_if_a_program_fails_what_is_out_races_again_though_others_are_left() -> None:
    turns = [0, 0, 0]

    def turn(program: int) -> float | None:
        turns[program] += 1
        return None if program == 0 and turns[0] > 3 else (1.0, 1.1, 3.0)[program]

    found = race(range(3), turn)
    assert found is not None
    assert (found.winner, list(found.turns)) == (1, [1, 2])
    assert turns[2] == 2 * len(found.turns[2])


class Fake:
    """A timer whose times are made up: programs are fast in the order of their instances, or fail."""

    def __init__(self, fails: int = 0, noise: float = 0.0, unit: float = 1e-4) -> None:
        """`fails`: the instances of the program that fails; `unit`: about the seconds of the fastest one."""
        self.asked: list[tuple[Spec, int]] = []
        self.starts = 0
        self._fails, self._noise, self._draw = fails, noise, random.Random(4)  # noqa: S311
        self._unit = unit

    def renew(self) -> None:
        """Counts."""
        self.starts += 1

    def seconds(self, spec: Spec, _: str, __: int, ___: int, iterations: int, **____: object) -> tuple[float, ...]:
        """Makes times up."""
        self.asked.append((spec, iterations))
        if spec.instances == self._fails:
            raise WorldError("it ended")
        true = self._unit * (1 + 0.1 * spec.instances)
        return tuple(true * math.exp(self._draw.gauss(0, self._noise)) for _ in range(iterations))


def test_the_faster_half_is_looked_at_again() -> None:
    many = [replace(RING, instances=number) for number in range(1, 41)]
    timer, failed = Fake(fails=7, noise=0.05), dict[str, str]()
    point = Point(timer, PLACE, 0.02, failed)  # pyright: ignore[reportArgumentType]
    point.start(many[20:21])
    point.look_at(many)
    assert len(point.looks) == 39
    assert len(timer.asked) == 41  # the first one was timed twice
    near = sum(took <= FAR * min(point.looks.values()) for took in point.looks.values())
    assert 8 < near < 19
    point.halve()
    assert len(timer.asked) == 41 + near + 8
    assert len(point.finalists) == FINALISTS
    assert set(point.finalists) <= set(many[:15])
    found = point.race(point.finalists, ())
    assert found is not None
    assert found.winner == many[0]
    assert timer.starts in (1, 2)
    assert failed == {str(many[6]): "it ended"}
    assert not point.brief


def test_one_long_call_shows_that_a_program_is_far_from_the_best() -> None:
    many = [replace(RING, instances=number) for number in range(1, 31)]
    timer = Fake(unit=0.01)
    point = Point(timer, PLACE, 0.02, {})  # pyright: ignore[reportArgumentType]
    point.start(many[:1])
    point.look_at(many)
    calls = [sum(count for spec, count in timer.asked if spec == each) for each in many]
    assert calls[1:12] == [3] * 11  # up to twice as long
    assert calls[12:] == [1] * 18
    assert point.looks[many[-1]] == pytest.approx(0.04)
    point.halve()
    assert point.finalists == many[:FINALISTS]


def test_a_race_that_time_has_ended_is_brief(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(gc3.tune.point.time, "monotonic", lambda: clock[0])
    draw = random.Random(8)  # noqa: S311

    def seconds(_: Fake, __: Spec, *given: object, **___: object) -> tuple[float, ...]:
        clock[0] += 1.0
        return (1e-3 * math.exp(draw.gauss(0, 0.3)),) * 2

    monkeypatch.setattr(Fake, "seconds", seconds)
    many = [replace(RING, instances=number) for number in range(1, 9)]
    point = Point(Fake(), PLACE, 0.02, {})  # pyright: ignore[reportArgumentType]
    point.look_at(many)
    for allowed, brief in ((10.0, True), (60.0, True), (math.inf, False)):  # no interval, a wide one, all rounds
        point.race(many, (), allowed)
        assert point.brief == brief


def tuned(monkeypatch: pytest.MonkeyPatch, *options: str) -> tuple[str, Callable[[str], str]]:
    """Runs `gc3 tune` at two sizes with a timer of seeded noise; the second value runs it with other options."""
    draw = random.Random(5)  # noqa: S311

    def seconds(_: object, spec: Spec, *given: object, **__: object) -> tuple[float, ...]:
        assert isinstance(given[3], int)
        true = 1e-5 * (1 + 0.2 * len(str(spec)))
        return tuple(true * math.exp(draw.gauss(0, 0.05)) for _ in range(given[3]))

    monkeypatch.setattr(RankTimer, "seconds", seconds)
    monkeypatch.setattr(RankTimer, "on_registered_memory", lambda _: None)  # it has ranks

    def run(*more: str) -> str:
        line = ["tune", "allgather", "--ranks", "2", "-b", "1KiB", "-e", "4KiB", *options, *more]
        done = CliRunner().invoke(main, line)
        assert done.exit_code == 0, done.output
        return done.stdout

    return run(), run


def test_the_command_says_how_sure_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = str(tmp_path / "t.json")
    said, run = tuned(monkeypatch, "-o", file)
    first = said.splitlines()[0]
    assert first.startswith("allgather, 2 ranks, 1 KiB: ")
    assert " to " in first
    assert " tried, none is faster" in first
    data = json.loads(run("--json"))
    for point in data["points"]:
        assert 0 <= point["within"] < 0.1
        best = min(point["times"], key=lambda each: each["median_us"])
        low, high = best["interval_us"]
        assert low <= best["median_us"] <= high
    # They are kept.
    known = Record(file, fresh=False).points
    assert [point.within for point in known] == [point["within"] for point in data["points"]]
    assert all(point.interval_of(point.best[0]) is not None for point in known)
    old = Measured(*PLACE[:4], ((RING, 1.0),), RING, 1)
    assert old.interval_of(RING) is None


def test_only_a_comparison_in_enough_rounds_says_how_much_faster_a_program_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank is stopped for long in a turn of the default's program; with a time limit that is its only turn."""
    stops = [True]

    def turns(_: object, programs: Iterable[Spec], kept: Collection[Spec], seconds: float = math.inf) -> object:
        (default, *_), (best, *_) = kept, [spec for spec in programs if spec not in kept]
        times = {best: iter([1e-6] * MOST_ROUNDS), default: iter([1e-2 if stops[0] else 2e-6] + [2e-6] * MOST_ROUNDS)}
        left = iter(range(0 if stops[0] else MOST_ROUNDS))
        return race(times, lambda spec: next(times[spec]), kept=kept, goes_on=lambda: next(left, None) is not None)

    monkeypatch.setattr(RankTimer, "seconds", lambda *_, **__: (1e-6,))
    monkeypatch.setattr(RankTimer, "on_registered_memory", lambda _: None)  # it has ranks
    monkeypatch.setattr(Point, "race", turns)
    (point,) = Tuner(Goal(("allgather",), (2,), (1024,))).points()
    assert point.default_us == pytest.approx(1e4)
    assert point.gain is None
    assert "not compared with the default" in tune_command.line(point)
    (row,) = ranges([point], [1024])
    assert "default" not in row.row()["note"]
    stops[0] = False
    (point,) = Tuner(Goal(("allgather",), (2,), (1024,))).points()
    assert point.gain == pytest.approx((2.0, 2.0, 2.0))
    assert "2.00 (2.00 to 2.00) times the default's speed" in tune_command.line(point)
    (row,) = ranges([point], [1024])
    assert "(default 2)" in row.row()["note"]


def test_what_is_fast_in_the_simulator_is_timed_first(monkeypatch: pytest.MonkeyPatch) -> None:
    timed: list[Spec] = []

    def seconds(_: object, spec: Spec, *__: object, **___: object) -> tuple[float, ...]:
        timed.append(spec)
        return (1e-3,)

    def predicted(_: Search, spec: Spec, size: int) -> float:
        sizes.add(size)
        return -spec.instances

    sizes: set[int] = set()
    many = [replace(RING, instances=number) for number in range(1, 9)]
    monkeypatch.setattr(on_ranks, "candidates", lambda *_, **__: tuple(many))
    monkeypatch.setattr(Search, "seconds", predicted)
    monkeypatch.setattr(RankTimer, "variants", lambda *_: ())
    monkeypatch.setattr(RankTimer, "seconds", seconds)
    monkeypatch.setattr(RankTimer, "on_registered_memory", lambda _: None)  # it has ranks
    tuner = Tuner(Goal(("allreduce",), (2,), (1 << 20, 2 << 20), time_limit=1000))
    assert len(list(tuner.points())) == 2
    first = [spec for spec in timed if spec in many][: len(many)]
    assert first == many[::-1]
    assert sizes == {1 << 20}  # at a size near it, what was measured counts
    tuner = Tuner(Goal(("allreduce",), (2,), (0, 1), time_limit=1000))
    assert len(list(tuner.points())) == 2
    assert sizes == {0, 1 << 20}


@pytest.mark.parametrize("engine", ["processes", "threads"])
def test_the_simulator_knows_the_engines(engine: str) -> None:
    predictor = on_ranks.simulated("allreduce", 4, engine, in_place=False, skew=1.0)
    small, large = (predictor.seconds(RING, size) for size in (1 << 10, 1 << 24))
    assert 0 < small < large < math.inf
    assert predictor.seconds(replace(RING, algorithm="direct_alltoall", instances=99999), 1) == math.inf


def test_brief_points_are_measured_again_in_the_time_that_others_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call at the large size takes long, so its share of the time does not suffice; the others leave theirs."""
    clock = [0.0]

    def seconds(_: object, spec: Spec, __: str, size: int, *___: object, **____: object) -> tuple[float, ...]:
        clock[0] += 1.0 if size == 1 << 20 else 0.01
        return (1.0 + spec.instances,)

    many = tuple(replace(RING, instances=number) for number in range(1, 61))
    monkeypatch.setattr(on_ranks, "candidates", lambda *_, **__: many)
    monkeypatch.setattr(on_ranks.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(RankTimer, "variants", lambda *_: ())
    monkeypatch.setattr(RankTimer, "seconds", seconds)
    monkeypatch.setattr(RankTimer, "on_registered_memory", lambda _: None)  # it has ranks
    sizes = tuple(1 << power for power in (14, 16, 17, 18, 19, 20))
    tuner = Tuner(Goal(("allreduce",), (2,), sizes, time_limit=160))
    points = [(point.size, point.brief) for point in tuner.points()]
    assert points[:2] == [(1 << 14, False), (1 << 20, True)]
    assert points[-1] == (1 << 20, False)
    assert len(points) == 7
    assert tuner.found.finished
    assert clock[0] < 180


def test_points_that_are_not_sure_are_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though all rounds were run: later the machine may be quieter."""
    measured: list[int] = []
    within = iter((0.2, 0.01, 0.0, 0.03))

    def point(_: Tuner, __: object, place: tuple[str, int, int, bool, float], *___: object) -> Measured:
        measured.append(place[2])
        return Measured(*place[:4], ((RING, 1.0),), None, 1, within=next(within))

    monkeypatch.setattr(on_ranks, "candidates", lambda *_, **__: (RING,))
    monkeypatch.setattr(Tuner, "_look_around", lambda *_: None)
    monkeypatch.setattr(Tuner, "_point", point)
    tuner = Tuner(Goal(("allreduce",), (2,), (1024, 4096, 16384), time_limit=1000))
    assert [each.within for each in tuner.points()] == [0.2, 0.01, 0.0, 0.03]
    assert measured == [1024, 16384, 4096, 1024]
    assert tuner.found.finished
