"""The files of gc3 tune: what is kept of points, and what an interrupted command leaves."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from gc3 import errors
from gc3.cli.main import main
from gc3.cli.tables import write_table
from gc3.comm.spec import Spec
from gc3.comm.timed_work import Work
from gc3.support import files
from gc3.tune import Measured, Record, SimulatedTuner, Tuner, table

pytestmark = pytest.mark.python_only

A = Spec("allpairs_allreduce", (("R", "ranks"),))


def test_a_record_keeps_programs_whole(tmp_path: Path) -> None:
    spec = Spec("ring_allreduce", (("R", "ranks"),), 2, "LL", 4, 4096, (("read_moved", None),), 7, (0, 2, 1, 3))
    point = Measured("allreduce", 4, 1024, False, ((spec, 1.0),), spec, 1, intervals_us=((0.9, 1.1),), within=0.02)
    Record(str(tmp_path / "t.json"), fresh=False).write([point])
    assert Record(str(tmp_path / "t.json"), fresh=False).points == (point,)
    beside = tmp_path / "t.json.points"
    text = beside.read_text()
    for old, new in (
        ("[0.9, 1.1]", "[0.9]"),
        ("[[0.9, 1.1]]", "[[0.9, 1.1], null]"),
        ('"ranks": 4', f'"ranks": {10**30}'),
        ('"tried": 1', '"tried": 1e999'),
        ("1.0]]", "0]]"),
        ('"R", "ranks"', '"R", "bogus"'),
        ('"allreduce"', '"gossip"'),
        ('"skew": 1.0', '"skew": 0'),
        ('"LL"', '"LL256"'),
        ("[0, 2, 1, 3]", "[0, 0, 1, 3]"),
        ('"read_moved"', '"turns"'),
        (text[text.index('"times_us": ') : text.index(', "default"')], '"times_us": []'),
    ):
        assert old in text
        beside.write_text(text.replace(old, new))
        with pytest.raises(errors.UserError, match=rf"'{beside}' is not a record of gc3 tune: .*--fresh"):
            Record(str(tmp_path / "t.json"), fresh=False)


def test_a_record_of_other_hosts_does_not_count(tmp_path: Path) -> None:
    file = str(tmp_path / "t.json")
    Record(file, fresh=False).write([Measured("allreduce", 4, 1024, False, ((A, 1.0),), A, 3)])
    assert Record(file, fresh=False, hosts="a, b").outdated == "hosts None"
    Record(file, fresh=True, hosts="a, c").write([Measured("allreduce", 4, 1024, False, ((A, 1.0),), A, 3)])
    found = Record(file, fresh=False, hosts="a, b")
    assert (found.points, found.outdated) == ((), "hosts a, c")


def test_a_record_is_written_beside_nobody_elses_file(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_text("mine")
    (tmp_path / "t.json.points.new").symlink_to(mine)
    record = Record(str(tmp_path / "t.json"), fresh=False)
    record.write([Measured("allreduce", 4, 1024, False, ((A, 1.0),), A, 3)])
    assert mine.read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "t.json.points", "t.json.points.new"]
    assert [point.size for point in Record(str(tmp_path / "t.json"), fresh=False).points] == [1024]


def test_thresholds_reach_the_record_and_the_ranks(tmp_path: Path) -> None:
    told = replace(A, thresholds=(("read_moved", None), ("spins", 3)))
    direct = ((A, 2.0), (replace(A, memory="direct"), 1.0))
    point = Measured("allreduce", 2, 1024, False, ((told, 1.0),), None, 1, registered_us=direct)
    record = Record(str(tmp_path / "t.json"), fresh=False)
    record.write([point])
    assert Record(str(tmp_path / "t.json"), fresh=False).points == (point,)
    work = Work("a.gc3", 1, 2, True, told.thresholds)
    assert Work.read(work.word()) == work


def interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C before the first point is known."""

    def points(*_: object) -> None:
        raise KeyboardInterrupt

    for each in (Tuner, SimulatedTuner):
        monkeypatch.setattr(each, "points", points)


@pytest.mark.parametrize("on", [[], ["-t", "dgx1"]])
def test_ctrl_c_before_the_first_point_keeps_what_there_was(
    on: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted(monkeypatch)
    file, rules = tmp_path / "t.json", tmp_path / "t.csv"
    line = ["tune", "allreduce", *on, "--ranks", "8", "-o", str(file), *(["--nccl-tuner", str(rules)] if on else [])]
    done = CliRunner().invoke(main, line)
    assert (done.exit_code, json.loads(file.read_text())["rows"]) == (130, [])
    assert f"0 rows in {file}" in done.output
    assert not rules.exists()
    for old in (file, rules):
        old.write_text("old")
    done = CliRunner().invoke(main, line)
    assert (done.exit_code, file.read_text(), rules.read_text()) == (130, "old", "old")
    assert f"nothing was found; {file} is as it was" in done.output
    assert "rows in" not in done.output
    assert "predicted" not in done.output


def test_one_command_at_a_time_writes_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has read what the other adds to the points, and would write them without it."""
    interrupted(monkeypatch)
    file, link = tmp_path / "t.json", tmp_path / "link.json"
    link.symlink_to(file)
    line = ["tune", "allreduce", "--ranks", "2", "-o"]
    with files.alone(f"{file}.lock", "", "BadArgument"):
        for name in (file, link):
            refused = CliRunner().invoke(main, [*line, str(name)])
            assert refused.exit_code == 1
            assert "another gc3 tune is writing" in refused.output
            assert not file.exists()
    assert CliRunner().invoke(main, [*line, str(link)]).exit_code == 130
    assert sorted(tmp_path.iterdir()) == [link, file]


def test_readers_of_a_table_never_see_a_part(tmp_path: Path) -> None:
    file, link = tmp_path / "t.json", tmp_path / "link.json"
    write_table(str(file), table([]))
    file.chmod(0o640)
    link.symlink_to(file)
    old = file.open()
    write_table(str(link), table([], "a machine"))
    assert "a machine" not in old.read()
    old.close()
    assert "a machine" in file.read_text()
    assert link.is_symlink()
    assert file.stat().st_mode & 0o777 == 0o640
    write_table(os.devnull, table([]))
    (tmp_path / "plain").touch()
    write_table(str(tmp_path / "new.json"), table([]))
    assert (tmp_path / "new.json").stat().st_mode == (tmp_path / "plain").stat().st_mode
    assert len(list(tmp_path.iterdir())) == 4
