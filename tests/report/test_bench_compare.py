"""`gc3 bench --compare` and `--picture`."""

# pyright: reportUnknownLambdaType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
from __future__ import annotations

import json
import random
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner, Result

import gc3
from gc3.algorithms import load
from gc3.cli import bench_compare
from gc3.cli.bench_compare import Earlier, difference, judged
from gc3.cli.main import main
from gc3.runtime import measure
from gc3.runtime.measure import Measurement, Row

pytestmark = pytest.mark.python_only

_BENCH = ["bench", "ring_allreduce:R=2", "-b", "1KiB", "-e", "4KiB", "-f", "4", "-n", "4", "--no-check"]


_MODES = ("out_of_place", "in_place")
_STEADY = [100, 101, 99, 100, 100] * 2


def _gc3(*command: str) -> Result:
    return CliRunner().invoke(main, list(command))


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of a small benchmark."""
    path = tmp_path_factory.mktemp("bench") / "old.json"
    result = _gc3(*_BENCH, "--json")
    assert result.exit_code == 0, result.output
    data = json.loads(result.stdout)
    for row in data["rows"]:
        for mode in _MODES:
            row[mode]["waited"] = 0.0  # whatever else this machine does
    path.write_text(json.dumps(data))
    return path


def _changed(old: Path, to: Path, change: Any) -> Path:
    data = json.loads(old.read_text())
    change(data)
    to.write_text(json.dumps(data))
    return to


def _timed(median: float) -> Any:
    return lambda data: data["rows"][0]["out_of_place"].update(median_us=median)


def _measured(median: float) -> Measurement:
    return Measurement(median, median, median, median, 1.0, 1.0, 0, median, median)


def _now(median: float) -> list[Row]:
    return [Row(1024, 256, "float32", "sum", -1, _measured(median), None)]


@pytest.mark.parametrize(
    ("before", "times", "told"),
    [
        (
            _STEADY,
            [105, 105, 106, 105, 105, 107],
            "slower at 1 KiB out of place, outside the noise (105 us, was 100 us)",
        ),
        (
            _STEADY,
            [95, 95, 94, 95, 93, 95],
            "faster at 1 KiB out of place, outside the noise (95 us, was 100 us)",
        ),
        (_STEADY, [102], "+2.0% at 1 KiB out of place, within the noise (102 us, was 100 us)"),
        ([100, 104, 96, 100, 100] * 2, [105], "at 1 KiB out of place, within the noise (105 us, was 99.97 us)"),
        # What was slow only once, or faster at another time, is noise.
        (_STEADY, [105, 105, 105, 100], "0.0% at 1 KiB out of place, within the noise (100 us"),
        (_STEADY, [105, 105, 105, 105, 105, 100], "0.0% at 1 KiB out of place, within the noise (100 us"),
        (_STEADY, [200, 50], "-50.0% at 1 KiB out of place, noise unknown (50 us"),
        ([100] * 9, [200], "+100.0% at 1 KiB out of place, noise unknown (200 us, was 100 us)"),
        ([100] * 10, [100], "0.0% at 1 KiB out of place, within the noise (100 us, was 100 us)"),
    ],
)
def test_differences(
    before: list[float], times: list[float], told: str, old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_compare, "_PAUSE_S", 0.0)

    def run(i: int) -> Any:  # of which no two are the same to the last digit
        return lambda data: (_timed(before[i])(data), data["rows"][0]["in_place"].update(median_us=i + 1))

    paths = [str(_changed(old, tmp_path / f"{i}.json", run(i))) for i in range(len(before))]
    earlier = Earlier(paths)
    left = iter(times)
    (found,) = earlier.differences(_now(next(left)), lambda *_: _measured(next(left)))
    assert told in str(found)
    assert list(left) == []
    assert bool(earlier.advice()) == (len(before) < 10)


def test_one_run_given_twice_is_refused(old: Path, tmp_path: Path) -> None:
    copy = _changed(old, tmp_path / "copy.json", lambda _: None)
    for again in old, copy:
        with pytest.raises(gc3.UserError, match="it has the same run as"):
            Earlier([str(old), str(again)])


def test_what_is_outside_is_measured_again_with_engines_made_anew(
    old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the threads of an engine have come to lie, they stay: a wait for a core is then in all of its times."""
    programs: list[gc3.Program] = []
    pauses: list[float] = []

    def time_(self: gc3.Program, *_: object, **__: object) -> list[float]:
        programs.append(self)
        return [1.0]

    def fast(i: int) -> Any:
        def change(data: Any) -> None:
            data["run"] = i
            for row in data["rows"]:
                for mode in _MODES:
                    row[mode]["median_us"] = 1 + i % 2

        return change

    paths = [str(_changed(old, tmp_path / f"{i}.json", fast(i))) for i in range(10)]
    monkeypatch.setattr(gc3.Program, "time", time_)
    monkeypatch.setattr(measure, "_waits", dict)  # whatever else this machine does
    monkeypatch.setattr(time, "sleep", pauses.append)
    result = _gc3(*_BENCH, *(part for path in paths for part in ("--compare", path)))
    assert result.output.count("slower at") == 4
    assert len(programs) == 2 * (4 + 5 * 4)  # with a run to warm up each
    assert len(set(map(id, programs[8:]))) == 5 * 4
    assert not {*map(id, programs[:8])} & {*map(id, programs[8:])}
    assert len(pauses) == 5


def test_a_run_whose_iterations_are_fast_and_slow_is_no_difference() -> None:
    """As of ten slow runs under load, and one with a median of fast iterations and as many slow ones."""
    times = [50e3, 60e3, 47e3, 46e3, 55e3, 40e3, 52e3, 57e3, 52e3, 44e3]
    assert not difference(1 << 20, "in_place", times, 9e3, (400.0, 40e3)).outside_noise
    assert difference(1 << 20, "in_place", times, 9e3, (400.0, 12e3)).outside_noise
    assert difference(1 << 20, "in_place", times, 90e3, (85e3, 120e3)).outside_noise
    assert not difference(1 << 20, "in_place", times, 90e3, (60e3, 120e3)).outside_noise


def test_a_wait_for_cores_is_no_difference(old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside other work, a rank that has no core makes an iteration last a thousand times as long."""
    monkeypatch.setattr(bench_compare, "_PAUSE_S", 0.0)

    def run(i: int, waited: float) -> Any:
        took = 9e3 if waited else 100 + i % 3
        return lambda data: data["rows"][0]["out_of_place"].update(median_us=took, time_us=took, waited=waited, run=i)

    def found(then: float, now: Measurement, runs: int = 12) -> tuple[bool | None, str]:
        paths = [str(_changed(old, tmp_path / f"{i}.json", run(i, then if i < 2 else 0.0))) for i in range(runs)]
        earlier = Earlier(paths)
        row = Row(1024, 256, "float32", "sum", -1, now, None)
        return next(iter(earlier.differences([row], lambda *_: now))).outside_noise, earlier.advice()

    slow = _measured(51e3)
    assert found(0.0, slow) == (True, "")
    assert found(0.0, replace(slow, waited=0.9)) == (None, bench_compare.BESIDE_LESS)
    # One long wait, in which some iterations were not: the median is that of the others.
    assert found(0.0, replace(slow, waited=0.9, time_us=1e6)) == (True, "")
    # Earlier runs of this kind do not count, however slow they were.
    assert found(0.9, _measured(110)) == (True, bench_compare.BESIDE_LESS)
    outside, advice = found(0.9, _measured(110), runs=11)
    assert outside is None
    assert advice.startswith("to tell differences from noise, compare with 1 or more further runs")
    assert advice.endswith(bench_compare.BESIDE_LESS)


def test_a_measurement_tells_how_long_threads_had_no_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the system counts it; for half of the time here, of a thread that is there before the timed iterations."""
    waits = iter([{"a": 5, "b": 100}, {"a": 5 + 10**8, "b": 200, "c": 7}])
    clock = iter([0.0, 0.2, 0.3, 0.4])
    monkeypatch.setattr(gc3.Program, "time", lambda *_, **__: [0.1, 0.1])
    monkeypatch.setattr(measure, "_waits", lambda: next(waits))
    monkeypatch.setattr(measure, "perf_counter", lambda: next(clock))
    program = gc3.compile(load("ring_allreduce"), R=2)
    found = measure.measure(program, 10, iterations=2, check=False, watched=True)
    assert found.waited == pytest.approx(0.5)
    assert measure.measure(program, 10, iterations=2, check=False).waited == 0.0


def test_few_of_many_equal_runs_differ() -> None:
    """Runs of one program under load, which differ by a few percent, and now and then by half."""
    chance = random.Random(1)  # noqa: S311

    def run(*_: object) -> float:
        return chance.gauss(100, 4) * (1.5 if chance.random() < 0.3 else 1)

    alarms = 0
    for _ in range(300):
        before = [run() for _ in range(10)]
        outside = [difference(1024, "in_place", before, run()).outside_noise for _ in range(4)]
        alarms += all(outside)
    assert alarms <= 3


def _pairs(chance: random.Random, factor: float) -> list[tuple[float, float]]:
    """Pairs of times of two programs, of which one takes `factor` as long, on a machine with slow phases.

    Each engine that is made is faster or slower than others by chance.
    """
    found: list[tuple[float, float]] = []
    phase = 1.0
    for _ in range(14):
        turns: list[float] = []
        for _ in range(2):
            phase = chance.choice((1.0, 1.6, 4.0)) if chance.random() < 0.2 else phase
            turns.append(100 * phase * chance.gauss(1, 0.01) * chance.gauss(1, 0.02))
        first = chance.random() < 0.5
        early, late = turns[0] * (factor if first else 1), turns[1] * (1 if first else factor)
        found.append((early, late) if first else (late, early))
    return found


def test_few_of_many_pairs_of_one_program_differ() -> None:
    chance = random.Random(2)  # noqa: S311
    alarms = sum(bool(judged(1024, "in_place", _pairs(chance, 1.0), 0.005).outside_noise) for _ in range(600))
    assert alarms <= 6
    found = [judged(1024, "in_place", _pairs(chance, 1.5), 0.005) for _ in range(100)]
    assert sum(d.outside_noise or False for d in found) > 50
    assert all(d.now_us > d.before_us for d in found if d.outside_noise)


@pytest.mark.parametrize(
    ("pairs", "outside"),
    [
        ([(101, 100)] * 9, True),  # 2 of the 512 ways to give the ranks their signs are like it: 0.0039
        ([(101, 100)] * 8, False),  # 2 of 256: 0.0078
        ([(100, 101)] * 9, True),
        ([(100 + i, 100) for i in range(3, 14)] + [(100, 101)], True),  # 4 of 4096
        ([(100 + i, 100) for i in range(1, 12)] + [(100, 200)], False),  # of which the largest says otherwise: 0.03
        ([(100, 100)] * 20, False),
    ],
)
def test_the_signed_rank_test(pairs: list[tuple[float, float]], outside: bool) -> None:
    assert judged(1024, "in_place", pairs, 0.005).outside_noise is outside


def test_a_program_at_hand_runs_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """The times here are those that a machine would have, in the order of the turns."""
    turns: list[str] = []

    def time(self: gc3.Program, *_: object, **__: object) -> list[float]:
        turns.append(self.name)
        return [1e-4 * (2 if self.name == "direct_allreduce" else 1) * (1 + 0.01 * len(turns))]

    monkeypatch.setattr(gc3.Program, "time", time)
    command = [*_BENCH, "--compare", "direct_allreduce:R=2"]
    result = _gc3(*command)
    assert result.exit_code == 0, result.output
    told = [line for line in result.output.splitlines() if "faster at" in line and ", outside the noise (" in line]
    assert len(told) == 4
    del turns[: 2 * 4]  # of the table, each after one run of its own
    assert len(turns) == 2 * 4 * (12 + 3)
    assert all({*turns[i : i + 2]} == {"ring_allreduce", "direct_allreduce"} for i in range(0, len(turns), 2))
    data = json.loads(_gc3(*command, "--json").stdout)
    assert [d["outside_noise"] for d in data["compared"]] == [True] * 4


@pytest.mark.parametrize(
    ("others", "told"),
    [
        (["ring_allreduce:R=3"], "'ring_allreduce' cannot be compared: it has ranks 3, not 2"),
        (["ring_allgather:R=2"], "it has collective allgather, not allreduce"),
        (["ring_allreduce:R=2", "direct_allreduce:R=2"], "or one program that runs in turns with X"),
        (["old.json", "direct_allreduce:R=2"], "or one program that runs in turns with X"),
        (["no_such:R=2"], "no_such"),
    ],
)
def test_programs_that_cannot_be_compared(others: list[str], told: str) -> None:
    result = _gc3(*_BENCH, *(part for other in others for part in ("--compare", other)))
    assert result.exit_code in (1, 2), result.output
    assert told in result.output


def test_the_command_compares_and_draws(old: Path, tmp_path: Path) -> None:
    drawing = tmp_path / "times.svg"
    result = _gc3(*_BENCH, "--compare", str(old), "--picture", str(drawing))
    assert result.exit_code == 0, result.output
    rows = [row for row in result.output.splitlines() if " noise unknown (" in row]
    assert len(rows) == 4
    assert "to tell differences from noise, compare with 9 or more further runs" in result.output
    titles = [t.text or "" for t in ET.parse(drawing).getroot().iter("{http://www.w3.org/2000/svg}title")]  # noqa: S314
    assert len([t for t in titles if t.startswith(("in place", "out of place"))]) == 8
    data = json.loads(_gc3(*_BENCH, "--compare", str(old), "--json").stdout)
    assert {(d["size"], d["mode"]) for d in data["compared"]} == {
        (size, mode) for size in (1024, 4096) for mode in ("out_of_place", "in_place")
    }


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda d: d["settings"].update(engine="processes"), "it has engine processes, not threads"),
        (lambda d: d["settings"].update(dtype="int8"), "it has dtype int8, not float32"),
        (lambda d: d["programs"]["out_of_place"].update(ranks=3), "it has ranks 3, not 2"),
        (lambda d: d.pop("rows"), "it is not what"),
        (lambda d: d["rows"][0].update(size="large"), "it is not what"),
        (lambda d: d["rows"][0].update(out_of_place=[]), "it is not what"),
        (lambda d: d["rows"][0]["in_place"].pop("median_us"), "it is not what"),
        (lambda d: d.update(programs=[]), "it is not what"),
        (lambda d: d.update(programs={"a": 1}), "it is not what"),
    ],
)
def test_files_that_cannot_be_compared(change: Any, told: str, old: Path, tmp_path: Path) -> None:
    path = _changed(old, tmp_path / "other.json", change)
    result = _gc3(*_BENCH, "--compare", str(path))
    assert result.exit_code == (1 if "it is not" in told else 2), result.output
    assert told in result.output


def test_files_of_other_kinds(tmp_path: Path) -> None:
    (tmp_path / "list.json").write_text("[1, 2]")
    (tmp_path / "text.json").write_text("hello")
    for name in ("list.json", "text.json", "none.json"):
        result = _gc3(*_BENCH, "--compare", str(tmp_path / name))
        assert result.exit_code == 1
        assert "Traceback" not in result.output
