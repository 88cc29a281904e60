"""gc3 tune: the candidates, how points become rows, and a small search with real ranks."""

from __future__ import annotations

import importlib
import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from math import isqrt
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner

from gc3 import collectives, errors
from gc3.cli.main import main
from gc3.comm.selection import Table, parse
from gc3.comm.spec import Spec
from gc3.comm.timed_work import Work
from gc3.tune import (
    Goal,
    Measured,
    Record,
    Tuner,
    candidates,
    on_ranks,
    ranges,
    table,
    timers,
)
from gc3.tune import record as records
from gc3.tune.ranges import assigned, kept_ranges
from gc3.tune.space import fits
from gc3.tune.timers import RankTimer

pytestmark = pytest.mark.python_only

A, B, C = (
    Spec(name, (("R", "ranks"),)) for name in ("allpairs_allreduce", "ring_allreduce", "binomial_tree_allreduce")
)


def measured(size: int, *, default: Spec = A, **times: float) -> Measured:
    found = tuple(({"a": A, "b": B, "c": C}[name], us) for name, us in times.items())
    return Measured("allreduce", 4, size, in_place=False, times_us=found, default=default, tried=3)


@pytest.mark.parametrize("name", list(collectives.BUILTIN))
@pytest.mark.parametrize("ranks", [2, 3])
def test_candidates_of_every_collective(name: str, ranks: int) -> None:
    found = candidates(name, ranks, in_place=name == "broadcast")
    assert found
    assert len(set(found)) == len(found)
    assert {spec.protocol for spec in found} == {"Simple", "LL", "LL128"}
    assert found == candidates(name, ranks, in_place=name == "broadcast")


def test_candidates_know_the_levels_that_the_ranks_allow() -> None:
    shapes = {spec.parameters for spec in candidates("allgather", 6, in_place=False) if "level" in spec.algorithm}
    assert shapes == {(("N", 2), ("G", 3)), (("N", 3), ("G", 2))}
    assert not any(spec.algorithm.startswith("hierarchical") for spec in candidates("allreduce", 3, in_place=False))


def test_what_is_not_worth_trying() -> None:
    ll, twice = Spec("x", (), protocol="LL"), Spec("x", (), instances=2)
    assert [fits(ll, size) for size in (1, 256 << 10, 1 << 20)] == [True, True, False]
    assert [fits(twice, size) for size in (1, 1 << 20)] == [False, True]
    large, small = Spec("x", (), slot_bytes=1 << 20), Spec("x", (), slot_bytes=32 << 10)
    assert [fits(large, size) for size in (1, 1 << 20)] == [False, True]
    assert [fits(small, size) for size in (1, 1 << 20)] == [True, False]


def test_fifos_are_tried_where_slots_are_copied_into() -> None:
    fifos = ((0, 0), (4, 32 << 10))
    found = candidates("allgather", 2, in_place=False, fifos=fifos)
    assert {(s.slots, s.slot_bytes) for s in found if s.protocol == "Simple"} == set(fifos)
    assert {(s.slots, s.slot_bytes) for s in found if s.protocol != "Simple"} == {(0, 0)}


def test_the_program_of_ranks_is_one_argument() -> None:
    work = Work("/a folder/\u00fc.gc3", 8, 4096, in_place=True)
    assert " " not in work.word()
    assert Work.read(work.word()) == work
    assert Work.read(replace(work, memory="direct").word()).memory == "direct"


def test_programs_that_are_as_good_as_equal_do_not_take_turns() -> None:
    turns = [measured(1, a=1.00, b=1.01), measured(2, a=1.01, b=1.0), measured(4, a=1.0, b=1.01)]
    assert assigned(turns) == [A, A, A]
    # Worth a change: 2 x at the last size. Not worth one: 4 % in the middle.
    points = [measured(1, a=1, b=2), measured(2, a=1.04, b=1), measured(4, a=2, b=1)]
    assert assigned(points) == [A, B, B]
    points = [measured(1, a=1, b=2), measured(2, a=1.025, b=1), measured(4, a=1, b=2)]
    assert assigned(points) == [A, A, A]


def test_no_size_is_served_by_a_program_that_is_slower_than_its_best() -> None:
    points = [measured(1, a=1, b=2), measured(2, a=1.07, b=1), measured(4, a=1, b=2)]
    assert assigned(points) == [A, B, A]  # two changes, which cost more than 7 %
    # The measurement does not tell whether it is slower by 7 % or by 1 %.
    points[1] = replace(points[1], intervals_us=((1.01, 1.2), (0.99, 1.01)))
    assert assigned(points) == [A, A, A]
    points[1] = replace(points[1], intervals_us=((1.04, 1.2), None))
    assert assigned(points) == [A, B, A]


def test_another_program_than_the_default_must_be_better() -> None:
    assert assigned([measured(1, b=1.0, a=1.02)]) == [A]
    assert assigned([measured(1, b=1.0, a=1.04)]) == [B]
    assert assigned([measured(1, default=C, a=1, b=1, c=1.5)]) == [A]


def test_a_program_that_was_no_finalist_serves_only_where_it_was_measured() -> None:
    points = [measured(1, a=1, c=1.5), measured(2, b=1, c=1.5), measured(4, a=1, c=1.5)]
    assert assigned(points) == [A, B, A]


def test_ranges_have_no_gaps_and_make_a_table() -> None:
    sizes = (1024, 4096, 16384)
    points = [measured(1024, a=1, b=9), measured(4096, a=9, b=1), measured(16384, a=9, b=1)]
    found = ranges(points, sizes)
    assert [(r.first, r.end, r.spec) for r in found] == [(512, 2048, A), (2048, 32768, B)]
    assert [r.in_place for r in found] == [None, None]
    rows = parse(json.dumps(table(each.row() for each in found)), "t.json")
    assert Table(rows).choose("allreduce", ranks=4, size=3000, in_place=False).row.spec == B
    assert rows[1].note == "tuned: 1 us (default 9) at 4096 B, 1 us (default 9) at 16384 B"
    # A search that ended early leaves the larger sizes to the default table.
    assert ranges(points[:1], sizes)[-1].end == 2048
    assert ranges([], sizes) == []
    # So does one that looked at a single size.
    (only,) = ranges(points[:1], sizes[:1])
    assert (only.first, only.end) == (724, 1448)
    for wrong in ("", "a", [], [2, 1], [-1], [np.ones(2)]):
        with pytest.raises(errors.UserError, match=r"GC3-L017 bad argument: (sizes?=|ranges\(\): sizes is 'a')"):
            ranges([], wrong)  # pyright: ignore[reportArgumentType]


def test_a_small_search_with_real_ranks(tmp_path: Path) -> None:
    file = tmp_path / "tuned.json"
    line = ["tune", "broadcast", "--ranks", "2", "-b", "1KiB", "-e", "1KiB"]
    done = CliRunner().invoke(main, [*line, "-o", str(file), "--json"])
    assert done.exit_code == 0, done.output
    data = json.loads(done.output)
    assert data["finished"]
    assert not data["failed"]
    assert [(p["collective"], p["size"]) for p in data["points"]] == [("broadcast", 1024)]
    for point in data["points"]:
        assert point["tried"] >= 5
        assert all(0 < t["median_us"] < 1e6 for t in point["times"])
    written = json.loads(file.read_text())
    assert written["rows"] == data["rows"]
    assert {row["collective"] for row in written["rows"]} == {"broadcast"}
    assert CliRunner().invoke(main, ["table", "check", str(file)]).exit_code == 0


def test_a_time_limit_leaves_the_rest_to_the_default_table(tmp_path: Path) -> None:
    file = tmp_path / "tuned.json"
    done = CliRunner().invoke(main, ["tune", "--ranks", "2", "--time-limit", "0.001", "-o", str(file)])
    assert done.exit_code == 0, done.output
    assert "not all points are measured" in done.output
    assert "0 rows" in done.output
    assert parse(file.read_text(), "tuned.json") == ()


def count_points(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int, bool, float]]:
    """Points measured from here on, without ranks: allreduce takes 1 us with the default program."""
    measured: list[tuple[str, int, int, bool, float]] = []

    def point(_: Tuner, __: object, place: tuple[str, int, int, bool, float], *___: object) -> Measured:
        measured.append(place)
        name, ranks, size, in_place, _ = place
        default = Table.default().choose(name, ranks=ranks, size=size, in_place=in_place).row.spec
        return Measured(*place[:4], ((default, 1.0),), default, 1)

    monkeypatch.setattr(Tuner, "_look_around", lambda *_: None)
    monkeypatch.setattr(Tuner, "_point", point)
    return measured


def tune(file: Path, *more: str) -> tuple[int, str]:
    line = ["tune", "allreduce", "--ranks", "2", "-b", "1KiB", "-e", "16KiB", "-o", str(file)]
    done = CliRunner().invoke(main, [*line, *more])
    return done.exit_code, done.output


def test_the_same_command_continues_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "tuned.json"
    measured = count_points(monkeypatch)
    assert tune(file, "-e", "4KiB")[0] == 0  # the smaller part of the output
    assert len(measured) == 2
    status, said = tune(file)
    assert status == 0, said
    assert "2 points known from" in said
    assert [place[2] for place in measured] == [1024, 4096, 16384]
    first = file.read_text()
    assert len(parse(first, "t.json")) >= 1
    file.unlink()  # measurements do not depend on it
    assert tune(file)[0] == 0
    assert file.read_text() == first
    assert len(measured) == 3
    assert tune(file, "--ranks", "3")[0] == 0
    assert tune(file)[0] == 0  # measuring for other ranks has discarded nothing
    assert len(measured) == 6
    assert tune(file, "--fresh")[0] == 0
    assert len(measured) == 9


@pytest.mark.parametrize("terminal", [True, False])
def test_a_terminal_has_points_by_size(terminal: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes that are far apart are measured first, and a pipe has each at once."""
    measured = count_points(monkeypatch)
    monkeypatch.setattr(
        importlib.import_module("gc3.cli.tune"), "sys", SimpleNamespace(stdout=SimpleNamespace(isatty=lambda: terminal))
    )
    status, said = tune(tmp_path / "tuned.json", "-e", "256KiB")
    assert status == 0, said
    told = [int(size) for size in re.findall(r"^allreduce, 2 ranks, (\d+) KiB: ", said, re.MULTILINE)]
    order = [place[2] >> 10 for place in measured]  # those that are far apart first; a pipe has each at once
    assert order != sorted(order)
    assert told == (sorted(order) if terminal else order)


# `gc3`, which tries two programs at each size.
FEW = """
from gc3.__main__ import main
from gc3.tune import on_ranks, space, timers
on_ranks.candidates = lambda *which, **how: space.candidates(*which, **how)[:2]
timers.RankTimer.variants = lambda *_: ()
main()
"""


def test_a_killed_tune_continues_where_it_stopped(tmp_path: Path) -> None:
    file = tmp_path / "tuned.json"
    line = [sys.executable, "-c", FEW, "tune", "scatter", "--ranks", "2", "-e", "4KiB"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "TMPDIR": str(tmp_path)}  # a killed process cannot clean up
    command = [*line, "-o", str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as tool:
        assert tool.stdout is not None
        said = tool.stdout.readline()
        tool.kill()
        tool.communicate(timeout=60)
    assert said.startswith("scatter, 2 ranks, 1 KiB: ")
    done = subprocess.run(command, capture_output=True, text=True, timeout=270, check=False)
    assert done.returncode == 0, done.stderr
    sizes = [text.split(", ")[2].split(":")[0] for text in done.stdout.splitlines() if text.startswith("scatter")]
    assert sizes in (["4 KiB"], [])  # it may have been done, though not said, when the kill came
    assert "known from" in done.stderr
    assert [point.size for point in Record(str(file), fresh=False).points] == [1 << 10, 4 << 10]


def test_points_of_another_machine_or_table_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "tuned.json"
    measured = count_points(monkeypatch)
    assert tune(file)[0] == 0
    here = records.machine()
    monkeypatch.setattr(records, "machine", lambda: {**here, "cores": 999})
    status, said = tune(file)
    assert status == 0
    assert f"was measured with cores {here['cores']}" in " ".join(said.split())
    assert len(measured) == 6
    # Nor do points for which the default table has changed.
    record = Record(str(file), fresh=False)
    other = Measured("allreduce", 2, 1024, in_place=False, times_us=((C, 1.0),), default=C, tried=1)
    record.write([other, *record.points[1:]])
    assert tune(file)[0] == 0
    assert [place[2] for place in measured[6:]] == [1024]


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": "gc3-selection-1", "rows": []}', '{"format": "gc3-tuning-1"}']
)
def test_a_file_that_is_not_a_record_is_not_overwritten(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, beside = tmp_path / "tuned.json", tmp_path / "tuned.json.points"
    beside.write_text(text)
    measured = count_points(monkeypatch)
    status, said = tune(file)
    assert status == 1
    assert "is not a record of gc3 tune" in " ".join(said.split())
    assert beside.read_text() == text
    assert not measured
    assert tune(file, "--fresh")[0] == 0
    assert len(Record(str(file), fresh=False).points) == 3


def test_a_record_keeps_programs_whole(tmp_path: Path) -> None:
    spec = Spec("ring_allreduce", (("R", "ranks"),), 2, "LL", 4, 4096, (("spins", 5),), 7, (0, 2, 1, 3))
    point = Measured("allreduce", 4, 1024, False, ((spec, 1.0),), spec, 1, intervals_us=((0.9, 1.1),), within=0.02)
    Record(str(tmp_path / "t.json"), fresh=False).write([point])
    assert Record(str(tmp_path / "t.json"), fresh=False).points == (point,)
    beside = tmp_path / "t.json.points"
    text = beside.read_text()
    for old, new in (
        ("[0.9, 1.1]", "[0.9]"),
        ('"ranks": 4', f'"ranks": {10**30}'),
        ('"tried": 1', '"tried": 1e999'),
        ('"instances": 2', '"instances": 0'),
    ):
        assert old in text
        beside.write_text(text.replace(old, new))
        with pytest.raises(errors.UserError, match="is not a record of gc3 tune"):
            Record(str(tmp_path / "t.json"), fresh=False)


def test_a_table_that_is_not_a_file_has_no_record(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = count_points(monkeypatch)
    assert tune(Path("/dev/null"))[0] == 0
    assert tune(Path("/dev/null"))[0] == 0
    assert len(measured) == 6
    assert not Path("/dev/null.points").exists()


def test_a_candidate_that_ends_its_ranks_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RankTimer, "renew", lambda _: None)  # to start them once
    unknown = Spec("no_such_algorithm", ())
    monkeypatch.setattr(on_ranks, "candidates", lambda *_, **__: (unknown, A))
    monkeypatch.setattr(RankTimer, "variants", lambda *_: ())
    tuner = Tuner(Goal(("allreduce",), (2,), (1024, 2048), seconds=0.001))
    points = list(tuner.points())
    assert list(tuner.failed) == [str(unknown)]
    assert "no_such_algorithm" in tuner.failed[str(unknown)]
    assert [point.tried for point in points] == [2, 2]
    assert all({spec for spec, _ in point.times_us} <= {A, point.default} for point in points)


def test_the_fastest_programs_are_also_tried_with_other_thresholds(monkeypatch: pytest.MonkeyPatch) -> None:
    timed: list[Spec] = []
    never = (("read_moved", None), ("read_combined", None), ("read_halved", None))

    def seconds(_: RankTimer, spec: Spec, *__: object, **___: object) -> tuple[float, ...]:
        timed.append(spec)
        return (1.0 if spec.thresholds == never else 2.0,)

    monkeypatch.setattr(on_ranks, "candidates", lambda *_, **__: (A,))
    monkeypatch.setattr(timers, "cores", lambda: 2)
    monkeypatch.setattr(RankTimer, "seconds", seconds)
    monkeypatch.setattr(RankTimer, "on_registered_memory", lambda _: None)  # it has ranks
    small, large = Tuner(Goal(("allreduce",), (2,), (1 << 10, 1 << 20))).points()
    assert {spec.thresholds for spec, _ in small.times_us if spec.protocol == "Simple"} <= {
        (),
        (("spins", 250),),
        (("spins", 8000),),
    }
    assert large.best[0].thresholds == never
    (*_, last) = ranges((small, large), (1 << 10, 1 << 20))
    assert last.row()["program"]["thresholds"] == {"read_moved": None, "read_combined": None, "read_halved": None}
    # A row is read as it was written, and a record as well.
    text = json.dumps(table([last.row()]))
    assert parse(text, "x.json")[0].spec == last.spec
    # With fewer cores than ranks, no wait spins.
    monkeypatch.setattr(timers, "cores", lambda: 1)
    timer = RankTimer(2)
    with timer:
        assert timer.variants(A, 1 << 10) == ()


def test_a_time_limit_is_shared_among_the_points(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    looked: list[tuple[int, Spec]] = []

    def seconds(_: RankTimer, spec: Spec, __: str, size: int, *___: object, **____: object) -> tuple[float, ...]:
        clock[0] += 1.0
        looked.append((size, spec))
        return (1.0 + (spec != many[-1]),)

    many = tuple(replace(A, instances=number) for number in range(1, 60))
    monkeypatch.setattr(on_ranks, "candidates", lambda *_, **__: many)
    monkeypatch.setattr(on_ranks.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(RankTimer, "variants", lambda *_: ())
    monkeypatch.setattr(RankTimer, "seconds", seconds)
    monkeypatch.setattr(RankTimer, "on_registered_memory", lambda _: None)  # it has ranks
    sizes = (1 << 14, 1 << 16, 1 << 18, 1 << 20)
    tuner = Tuner(Goal(("allreduce",), (2,), sizes, time_limit=400))
    first = list(tuner.points())
    # The ends of the range come first, and no point takes the time of the others.
    assert [point.size for point in first] == [1 << 14, 1 << 20, 1 << 16, 1 << 18]
    assert not tuner.found.finished
    assert first[0].brief
    assert clock[0] < 450
    # Later runs measure brief points again, and begin with what was fast before.
    more = Tuner(Goal(("allreduce",), (2,), sizes), first)
    brief = [point.size for point in first if point.brief]
    assert [point.size for point in more.points()] == brief
    assert more.found.finished
    assert {point.best[0] for point in more.found.points} == {many[-1]}


def test_a_boundary_lies_between_measured_sizes() -> None:
    near, far = measured(1 << 10, a=1.0, b=9.0), measured(1 << 18, a=9.0, b=1.0)
    sizes = [1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20]
    assert [(r.first, r.end) for r in ranges([near, far], sizes)] == [(512, 1 << 14), (1 << 14, 1 << 19)]


def test_a_row_begins_where_sizes_were_measured() -> None:
    sizes = [1 << 10, 1 << 12, 1 << 14]
    (late,) = ranges([measured(1 << 14, a=1.0)], sizes)
    assert (late.first, late.end) == (1 << 13, 1 << 15)


def test_no_kept_row_serves_sizes_that_only_another_command_has_measured() -> None:
    small, large = measured(1 << 10, a=1.0), replace(measured(1 << 24, a=1.0), collective="allgather")
    direct = replace(A, memory="direct")
    large = replace(large, registered_us=((A, 1.0), (direct, 0.5)))
    other = Goal(("scatter",), (4,), (1 << 10, 1 << 24))
    one, two = (isqrt(1 << 2 * e - 1) for e in (10, 24)), (isqrt(1 << 2 * e + 1) for e in (10, 24))
    around = dict(zip(("allreduce", "allgather"), zip(one, two, strict=True), strict=True))
    for points in ([small, large], [large, small, replace(large, collective="scatter", ranks=2)]):
        rows = [row for row in kept_ranges(points, other) if row.collective in around and row.ranks == 4]
        assert [(r.collective, r.spec) for r in rows] == [("allgather", direct), ("allgather", A), ("allreduce", A)]
        assert all((row.first, row.end) == around[row.collective] for row in rows)
    # Nor sizes between or beyond those that a command has measured before it was interrupted.
    ends = [measured(1 << 10, a=1.0, b=9.0), measured(1 << 24, a=9.0, b=1.0)]
    assert [(row.first, row.end) for row in kept_ranges(ends, other)] == [(1 << 9, 1 << 17), (1 << 17, 1 << 25)]
    wanted = Goal(("allreduce",), (4,), tuple(1 << e for e in range(8, 26, 2)))
    assert [(row.first, row.end) for row in kept_ranges(ends, wanted)] == [(1 << 9, 1 << 17), (1 << 17, 1 << 25)]


def test_ctrl_c_writes_the_results_so_far(tmp_path: Path) -> None:
    file = tmp_path / "tuned.json"
    line = [sys.executable, "-c", FEW, "tune", "scatter", "--ranks", "2", "-o", str(file)]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as tool:
        assert tool.stdout is not None
        first = tool.stdout.readline()
        tool.send_signal(signal.SIGINT)
        rest, said = tool.communicate(timeout=60)
    assert first.startswith("scatter, 2 ranks, 1 KiB: ")
    assert tool.returncode == 130, said
    assert "Traceback" not in said
    assert f"1 row in {file}" in rest
    (row,) = parse(file.read_text(), "tuned.json")
    assert row.limits.size[0] == 512


def test_invalid_options_are_refused(tmp_path: Path) -> None:
    for more, message in (
        (["-b", "1MiB", "-e", "1KiB"], "is below the smallest"),
        (["--ranks", "1"], "not a list of numbers from 2"),
        (["gossip"], "nor one of allreduce"),
    ):
        done = CliRunner().invoke(main, ["tune", "-o", str(tmp_path / "t.json"), *more])
        assert done.exit_code == 2
        assert message in done.output
    done = CliRunner().invoke(main, ["tune", "-o", str(tmp_path / "no" / "t.json")])
    assert done.exit_code == 1
    assert "GC3-I002" in done.output
    with pytest.raises(errors.UserError, match="GC3-I001"):
        Table.read(tmp_path / "t.json")
