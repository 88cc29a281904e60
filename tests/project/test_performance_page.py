"""The page of results and its drawings are generated from the committed measurements."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import pytest
import test_peers
import versus
from click.testing import CliRunner
from peers import contest, page, record, rows
from peers.points import COLLECTIVES, OURS

from gc3.comm.selection import Table

pytestmark = pytest.mark.python_only


def intel() -> Any:
    return record.read(record.RESULTS / "processes-intel-r-xeon-r-processor.json")


def as_new(data: Any, **more: Any) -> Any:
    """The document of a run that measured this."""
    return {**data, "settings": {"conditions": "quiet"}, **more}


def test_the_tables_say_what_was_measured() -> None:
    machines = versus.machines()
    text = versus.PAGE.read_text()
    assert page.page(text, machines) == text
    groups = [len({(p.collective, p.ranks) for p in record.points(data)}) for data in machines]
    assert text.count("\n#### ") == sum(groups)
    first = text.index("\n## ")
    for data in machines:
        assert page.title(data) in text[:first]
        drawing = (versus.PAGE.parent / page.drawing_of(data)).read_bytes()
        assert len(zlib.compress(drawing)) < 50_000  # what git keeps and a browser loads
        assert record.path_of(data).exists()


def test_rows_of_the_default_table_name_the_machines_they_were_measured_on() -> None:
    machines = versus.machines()
    assert len(machines) > 1
    found = Table.default().rows
    for data in machines:
        points = rows.measured(data)
        assert points
        for row in found:
            if row.source in points:
                assert page.title(data) in row.note, row.source
    # Every row says where it was measured, or that it was not.
    assert all(("measured on" in row.note) != ("not measured" in row.note) for row in found)
    assert any("not measured" in row.note for row in found)


def test_rows_that_are_slow_on_a_machine_are_marked() -> None:
    data = intel()
    first = data["points"][0]
    slow = {**first, "times": {**first["times"], OURS: {**first["times"][OURS], "median_us": 1e6}}}
    shown = [list(rows.table([{**data, "points": points}], ["here"])) for points in ([first], [slow])]
    assert [len(lines) for lines in shown] == [3, 3]
    assert ["**" in lines[-1] for lines in shown] == [False, True]
    assert "0.00 at 2 ranks, 1 KiB" in shown[1][-1]


def test_new_points_replace_old_ones_of_the_same_kind() -> None:
    results = intel()
    first, second = results["points"][:2]
    again = {**first, "bound_us": 1.0}
    both = record.merged({**results, "points": [second, first]}, as_new(results, points=[again]))
    assert both["points"] == [again, second]
    assert both["summary"]["points"] == 2


def test_earlier_measurements_are_kept() -> None:
    old = intel()
    new = as_new(old, libraries={"mpich": "MPICH 9"}, missing={"openmpi": "not here", "mpi4py": "not here"}, points=[])
    both = record.merged(old, new)
    assert both["libraries"] == {**old["libraries"], "mpich": "MPICH 9"}
    assert both["missing"] == {"mpi4py": "not here"}
    loaded = as_new(old, settings={"conditions": "loaded"}, machine={"cpu": "x"}, points=old["points"][:1])
    both = record.merged(both, loaded)
    assert both["machine"] == old["machine"]
    assert both["points"] == old["points"]
    assert both["loaded"] == old["points"][:1]
    assert [p.collective for p in record.points(both, "loaded")] == ["allreduce"]


def test_reasons_are_kept_and_asked_for() -> None:
    old = {**intel(), "reasons": {}}
    first = record.merged(old, as_new(old))
    assert set(first["reasons"].values()) == {""}
    assert len(first["reasons"]) == first["summary"]["lost"] == 8
    key = "allgather 8 4194304"
    first["reasons"][key] = "a slow hour"
    won = [point for point in old["points"] if point["speedup"] < 1][:2]
    for point in won:
        point["times"] = {**point["times"], OURS: {**point["times"][OURS], "median_us": 0.001}}
    second = record.merged(first, as_new(old, points=won))
    assert second["reasons"][key] == "a slow hour"
    assert len(second["reasons"]) == 7 if key in {record.reason_of(p) for p in record.points({"points": won})} else 6
    assert "| a slow hour |" in "\n".join(page.results([first]))


def test_an_interrupted_run_keeps_what_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    test_peers.toys(monkeypatch, quick="pass")
    monkeypatch.setattr(record, "RESULTS", tmp_path / "results")
    measure = contest.Contest._point  # pyright: ignore[reportPrivateUsage]

    def interrupted(self: Any, contenders: Any, call: Any, stack: Any) -> Any:
        if call.collective == "broadcast":
            raise KeyboardInterrupt
        return measure(self, contenders, call, stack)

    monkeypatch.setattr(contest.Contest, "_point", interrupted)
    copy = tmp_path / "page.md"
    copy.write_text(versus.PAGE.read_text())
    monkeypatch.setattr(versus, "PAGE", copy)
    arguments = "--ranks 2 --collectives allreduce,broadcast -e 4KiB --turns 1 --record --patterns reused"
    run = CliRunner().invoke(versus.versus, arguments)
    assert run.exit_code != 0
    (path,) = (tmp_path / "results").iterdir()
    data = json.loads(path.read_text())
    assert [(p["collective"], p["size"]) for p in data["points"]] == [("allreduce", 1024), ("allreduce", 4096)]
    assert data["libraries"] == {"toy": "Toy 1"}
    assert f"### {page.title(data)}" in copy.read_text()
    assert "#### broadcast" not in copy.read_text()


def test_a_whole_run_is_recorded_and_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    test_peers.toys(monkeypatch, quick="pass")
    others = {page.title(machine) for machine in versus.machines()}
    monkeypatch.setattr(record, "RESULTS", tmp_path / "results")
    copy = tmp_path / "page.md"
    copy.write_text(versus.PAGE.read_text())
    monkeypatch.setattr(versus, "PAGE", copy)
    base = ["--ranks", "2", "--collectives", "allreduce", "-e", "1KiB", "--turns", "1", "--record"]
    for conditions in ("quiet", "loaded"):
        run = CliRunner().invoke(versus.versus, [*base, "--conditions", conditions])
        assert run.exit_code == 0, run.output
    (data,) = versus.machines()
    text = copy.read_text()
    assert page.drawing_of(data) in text
    assert (tmp_path / page.drawing_of(data)).exists()
    assert "| allreduce, 2 ranks, 1 KiB |" in text
    assert "| AllReduce of 1 KiB, 2 ranks, loaded: p99, us, below | 1000 |" in text
    assert "rotated: gc3" in text
    assert "Each rank sleeps up to 1 ms before each call" in text
    shown = text.partition("\n## Where")[0]
    assert not any(title in shown for title in others - {page.title(data)})  # their results are not in the folder
    ours = record.points(data)[0].times[OURS]
    assert f"{ours.p99_us:.2f}"[:3] in text
    assert set(COLLECTIVES) > {p.collective for p in record.points(data, "loaded")}
