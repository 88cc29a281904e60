"""The page of results and its pictures are made of the committed measurements."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import applications
import on_hosts
import pytest
import test_peers
import versus
from click.testing import CliRunner
from peers import contest, record
from peers.points import COLLECTIVES, OURS

import performance
from gc3.comm.selection import Table

pytestmark = pytest.mark.python_only


def intel() -> Any:
    return record.read(record.RESULTS / "processes-intel-r-xeon-r-processor.json")


def as_new(data: Any, **more: Any) -> Any:
    """The document of a run that measured this."""
    return {**data, "settings": {"conditions": "quiet", "collectives": ["allreduce"]}, **more}


def shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **results: Any) -> str:
    """The page of some results."""
    monkeypatch.setattr(performance, "RESULTS", tmp_path)
    for name, data in results.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(data))
    return performance.files()[performance.PAGE]


def test_the_tables_say_what_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = performance.files()
    pages = (performance.PAGE, performance.EVIDENCE)
    drawn = [data for kind in performance.KINDS for _, data in performance.read(kind)]
    steps = [data for _, data in performance.read("pytorch") if "calls of gloo" in json.dumps(data)]
    assert len(files) == len(pages) + len(drawn) + len(steps)
    assert all(len(files[page].encode()) <= 20 << 10 for page in pages)  # a reader's hour, not a day
    assert all(len(text) < 10_000 for path, text in files.items() if path not in pages)
    point = {"collective": "allreduce", "ranks": 2, "size": 1024, "version": "7", "best_peer": "b", "speedup": 2.0}
    point |= {"times": {"gc3": {"median_us": 1.2345, "rounds_us": [1.0, 2.0]}}, "peers": {"b": "mpich"}}
    point["times"]["b"] = {"median_us": 2.469, "rounds_us": [2.0, 3.0]}
    summary = {"points": 1, "speedup": 2.0, "by_ranks": {"2": 2.0}, "by_peer": {"mpich": 2.0}, "slowest": 2.0}
    data = {"machine": {"cpu": "Abacus", "cores": 3}, "date": "1642-01-02", "command": "count", "points": [point]}
    data |= {"summary": {**summary, "lost": 0}, "failed": {"gc3 itself": "lost"}, "libraries": {"mpich": "MPICH 9"}}
    text = shown(tmp_path, monkeypatch, processes=data)
    assert "**Abacus, 3 cores**, 1642-01-02, `count`; gc3 7; MPICH 9." in text
    assert "| allreduce, 2 | 1.23 us, 2.00 (1.00 to 3.00) |  |  |" in text
    assert "Left out: gc3 itself: lost." in text
    assert "AMD" not in text.partition("## Simulated")[0]


def test_only_the_first_machine_has_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = {name: {**intel(), "machine": {"cpu": name, "cores": 3}} for name in ("processes-a", "processes-b")}
    text = shown(tmp_path, monkeypatch, **results).partition("## Simulated")[0]
    assert text.count("All 135 points: ") == text.count("images/processes-") == 2
    assert text.count("| allreduce, 2 |") == 1


def test_what_steps_hide_of_their_calls_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ms = {"gloo": 100, "gc3 in C++": 70, "alone": 50, "DDP alone": 60, "calls of gloo": 90, "calls of gc3 in C++": 5}
    point = {"step": "a model, DDP", "ranks": 2, "us": {name: {"median": 1e3 * value} for name, value in ms.items()}}
    call = {"call": "all_reduce", "bytes": 1024, "ranks": 2}
    call["us"] = {name: {"median": 1.0} for name in ("gloo", "gc3 in C++", "gc3 in Python")}
    data = [{"machine": {"cpu": "Abacus", "cores": 3}, "date": "1642-01-02", "command": "a.py b", "version": "7"}]
    data[0] |= {"points": [call, point]}
    text = shown(tmp_path, monkeypatch, **{"pytorch-a": data})
    assert text.count("images/pytorch-a") == 2
    picture = performance.files()[performance.PICTURES / "pytorch-a-2.svg"]
    assert [picture.count(f">{total}</text>") for total in (100, 70)] == [1, 1]
    # Gloo: 10 ms of computation only, 50 that hide calls, 40 of calls alone; nothing of gc3's calls is hidden.
    widths = [float(width) for width in re.findall(r'width="([\d.]+)" height="15"', picture)]
    assert widths == [38, 190, 152, 228, 0, 38]


def test_a_claim_that_is_not_reproduced_has_both_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    claim = {"paper": "1", "kind": "A", "reproduced": False, "expected": "2x", "found": "3x", "name": "1-a"}
    claim |= {"given": None}
    constant = {**claim, "given": "a constant", "reproduced": True, "name": "1-b"}
    data = {"date": "today", "command": "c", "version": "7", "claims": [claim, constant], "out_of_reach": []}
    text = shown(tmp_path, monkeypatch, papers=data)
    assert "0 of 1 claims that counting decides" in text
    assert "Besides, 1 formulas and constants hold" in text
    assert "\n- `1-a`: paper 2x, simulated 3x\n" in text


def test_points_of_hosts_and_applications_replace_old_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "RESULTS", tmp_path)
    point: dict[str, Any] = {"hosts": 2, "ranks_per_host": 1, "rate": "none", "collective": "allreduce", "size": 8}
    for us in (3.0, 2.0):
        on_hosts.keep({**point, "us": {"gc3": [us]}})
        applications.keep({"case": "fft3d, 2 ranks", "rows": [us]})
    hosts, done = (record.read(next(tmp_path.glob(f"{kind}-*"))) for kind in ("hosts", "applications"))
    assert [p["us"] for p in hosts["points"]] == [{"gc3": [2.0]}]
    assert [p["rows"] for p in done["points"]] == [[2.0]]
    assert all(data["machine"]["cpu"] and data["date"] and data["command"] for data in (hosts, done))


def test_rows_of_the_default_table_name_the_machines_they_were_measured_on() -> None:
    machines = performance.read("processes")
    assert len(machines) > 1
    found = Table.default()
    for _, data in machines:
        title = f"{data['machine']['cpu']}, {data['machine']['cores']} cores"
        measured: set[str] = set()
        for p in record.points(data):
            in_place = p.collective == "broadcast"  # as calls are measured
            row = found.choose(p.collective, ranks=p.ranks, size=p.size, in_place=in_place).row
            measured.add(row.source)
            assert title in row.note, row.source
        assert len(measured) > 10
    # Every row says where it was measured, or that it was not.
    assert all(("measured on" in row.note) != ("not measured" in row.note) for row in found.rows)
    assert any("not measured" in row.note for row in found.rows)


def test_new_points_replace_old_ones_of_the_same_kind() -> None:
    results = intel()
    first, second = results["points"][:2]
    again = {**first, "bound_us": 1.0}
    both = record.merged({**results, "points": [second, first]}, as_new(results, points=[again]))
    assert both["points"] == [again, second]
    assert both["summary"]["points"] == 2


def test_earlier_measurements_are_kept() -> None:
    old = {**intel(), "loaded": []}
    new = as_new(old, libraries={"mpich": "MPICH 9"}, missing={"openmpi": "not here", "other": "not here"}, points=[])
    both = record.merged(old, new)
    assert both["libraries"] == {**old["libraries"], "mpich": "MPICH 9"}
    assert both["missing"] == {"other": "not here"}
    loaded = as_new(
        old,
        settings={"conditions": "loaded", "collectives": ["allreduce"]},
        machine={"cpu": "x"},
        points=old["points"][:1],
    )
    both = record.merged(both, loaded)
    assert both["machine"] == old["machine"]
    assert both["points"] == old["points"]
    assert both["loaded"] == old["points"][:1]
    assert [p.collective for p in record.points(both, "loaded")] == ["allreduce"]


def test_messages_are_kept_apart() -> None:
    old = {**intel(), "messages": []}
    one = {**old["points"][0], "collective": "window"}
    both = record.merged(old, as_new(old, settings={"conditions": "quiet", "collectives": ["window"]}, points=[one]))
    assert both["points"] == old["points"]
    assert both["messages"] == [one]


def test_reasons_are_kept_and_asked_for() -> None:
    old = {**intel(), "reasons": {}}
    first = record.merged(old, as_new(old))
    assert set(first["reasons"].values()) == {""}
    lost = [point for point in old["points"] if point["speedup"] < 1]
    assert len(first["reasons"]) == first["summary"]["lost"] == len(lost)
    won = lost[:2]
    key, *_ = (record.reason_of(p) for p in record.points({"points": won}))
    first["reasons"][key] = "a slow hour"
    for point in won:
        point["times"] = {**point["times"], OURS: {**point["times"][OURS], "median_us": 0.001}}
    second = record.merged(first, as_new(old, points=won))
    assert second["reasons"][key] == "a slow hour"  # stays, also where the point is won now
    assert len(second["reasons"]) == len(lost) - 1


def test_an_interrupted_run_keeps_what_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    test_peers.toys(monkeypatch, quick="pass")
    monkeypatch.setattr(record, "RESULTS", tmp_path / "results")
    measure = contest.Contest._point  # pyright: ignore[reportPrivateUsage]

    def interrupted(self: Any, contenders: Any, call: Any, stack: Any) -> Any:
        if call.collective == "broadcast":
            raise KeyboardInterrupt
        return measure(self, contenders, call, stack)

    monkeypatch.setattr(contest.Contest, "_point", interrupted)
    arguments = "--ranks 2 --collectives allreduce,broadcast -e 4KiB --turns 1 --record --patterns reused"
    run = CliRunner().invoke(versus.versus, arguments)
    assert run.exit_code != 0
    (path,) = (tmp_path / "results").iterdir()
    data = json.loads(path.read_text())
    assert [(p["collective"], p["size"]) for p in data["points"]] == [("allreduce", 1024), ("allreduce", 4096)]
    assert data["libraries"] == {"toy": "Toy 1"}


def test_a_whole_run_is_recorded_and_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    test_peers.toys(monkeypatch, quick="pass")
    monkeypatch.setattr(record, "RESULTS", tmp_path / "results")
    base = ["--ranks", "2", "--collectives", "allreduce", "-e", "1KiB", "--turns", "1", "--record"]
    for conditions in ("quiet", "loaded"):
        run = CliRunner().invoke(versus.versus, [*base, "--conditions", conditions])
        assert run.exit_code == 0, run.output
    (path,) = (tmp_path / "results").iterdir()
    data = record.read(path)
    ours = record.points(data)[0].times[OURS]
    assert ours.p99_us
    assert set(COLLECTIVES) > {p.collective for p in record.points(data, "loaded")}
    monkeypatch.setattr(performance, "RESULTS", path.parent)
    text = performance.files()[performance.PAGE]
    assert "All 1 points: " in text
    assert "| 2 ranks, beside loops | " in text
