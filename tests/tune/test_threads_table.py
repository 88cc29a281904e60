"""The table that gc3 tune keeps for the engine of threads, and what chooses by it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import gc3
from gc3 import errors
from gc3.cli.main import main
from gc3.comm import kept
from gc3.comm.selection import Table, parse
from gc3.comm.spec import Spec
from gc3.comm.tool_ranks import Ranks
from gc3.comm.world import WorldError
from gc3.runtime import kept_files
from gc3.tune.timers import ThreadTimer

pytestmark = pytest.mark.python_only

_ROW = {"collective": "gather", "ranks": [3, 3], "program": {"algorithm": "chain_gather"}}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GC3_CACHE", str(tmp_path))
    return tmp_path


def keep(engine: str, *rows: object) -> Path:
    file = kept.path(engine)
    assert file is not None
    file.write_text(json.dumps({"format": "gc3-selection-1", "engine": engine, "rows": rows}))
    file.chmod(0o600)
    return file


def cli(*line: str) -> str:
    done = CliRunner().invoke(main, line)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_what_was_tuned_on_threads_is_used_on_threads(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = ["tune", "--engine", "threads", "broadcast", "scatter", "--ranks", "2", "-b", "1KiB"]
    said = json.loads(cli(*line, "-e", "1KiB", "--json"))
    assert said["engine"] == "threads"
    assert said["finished"]
    assert not said["failed"]
    assert len(said["points"]) == 2
    assert all(0 < t["median_us"] < 1e6 for point in said["points"] for t in point["times"])
    file = kept.path("threads")
    assert file is not None
    assert sorted(cache.glob("tuned-*")) == [file, Path(f"{file}.points")]
    assert json.loads(file.read_text())["engine"] == "threads"
    cli("table", "check", str(file))
    call = {"ranks": 2, "size": 1024}
    chosen = gc3.select("scatter", **call)
    assert chosen.explanation.source.startswith(f"{file} row ")
    assert re.search(r"\d core(s|); ranks were threads", str(chosen.explanation))
    shown = cli("table", "show", "threads", "--collective", "scatter", "--ranks", "2", "--size", "1KiB")
    assert shown.startswith(chosen.explanation.source)
    ran = ["run", "scatter:R=2", "--size", "1KiB", "--json"]
    assert json.loads(cli(*ran))["chosen_by"] == chosen.explanation.source
    # Neither the engine of processes nor another machine or version uses it.
    assert kept.read("processes") is None
    assert json.loads(cli(*ran, "--engine", "processes"))["chosen_by"].startswith("default.json")
    monkeypatch.setattr(kept_files, "_conditions", lambda: "0123")
    assert gc3.select("scatter", **call).explanation.source.startswith("default.json")
    monkeypatch.undo()
    monkeypatch.setenv("GC3_CACHE", "off")
    assert gc3.select("scatter", **call).explanation.source.startswith("default.json")


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("root", [0, 2])
def test_a_selected_program_runs_with_the_fifos_of_its_row(root: int) -> None:
    file = keep("threads", {**_ROW, "program": {**_ROW["program"], "parameters": {"R": "ranks", "root": "root"},
                                                "slots": 2, "slot_bytes": 4096}})  # fmt: skip
    chosen = gc3.select("gather", ranks=3, size=1 << 20, root=root)
    assert chosen.explanation.source == f"{file} row 1"
    assert (chosen.program.name, chosen.options.slots, chosen.options.slot_bytes) == ("chain_gather", 2, 4096)
    assert chosen.program.collective.root == root
    result = chosen.run([np.full(1000, rank, np.float32) for rank in range(3)])[root]
    assert result is not None
    assert result.tolist() == [0.0] * 1000 + [1.0] * 1000 + [2.0] * 1000
    # One more rank than the row serves.
    assert gc3.select("gather", ranks=4, size=1 << 20).explanation.source.startswith("default.json")


@pytest.mark.usefixtures("cache")
def test_a_row_for_one_root_serves_that_root() -> None:
    keep("threads", {**_ROW, "root": 1, "program": {"algorithm": "chain_gather", "parameters": {"R": 3, "root": 1}}})
    found = [gc3.select("gather", ranks=3, size=8, root=root).program for root in (0, 1)]
    assert [(p.name == "chain_gather", p.collective.root) for p in found] == [(False, 0), (True, 1)]


def test_a_given_table_comes_first(tmp_path: Path) -> None:
    mine = tmp_path / "mine.json"
    mine.write_text(json.dumps({"format": "gc3-selection-1", "rows": [_ROW]}))
    assert gc3.select("gather", ranks=3, size=8, table=mine).explanation.source == "mine.json row 1"


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ({"collective": "gossip", "ranks": 2, "size": 8}, "there is no collective 'gossip'"),
        ({"collective": "allreduce", "ranks": 0, "size": 8}, "ranks=0"),
        ({"collective": "allreduce", "ranks": 2, "size": -1}, "size=-1"),
        ({"collective": "gather", "ranks": 2, "size": 8, "root": 2}, "root=2"),
        ({"collective": "gather", "ranks": 2, "size": 8, "table": "/no/such.json"}, "/no/such.json"),
    ],
)
def test_mistakes_in_a_selection(call: dict[str, object], said: str) -> None:
    with pytest.raises(errors.UserError) as caught:
        gc3.select(**call)  # pyright: ignore[reportArgumentType]
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["run", "allreduce"], "write allreduce:R=N, with the number of ranks"),
        (["run", "gather:r=2"], "write gather:R=N,root=N, with the number"),
        (["run", "allreduce:R=2,root=1"], "write allreduce:R=N, with the number of ranks"),
        (["run", "gather:R=2,root=2"], "there is no such rank"),
        (["run", "allreduce:R=2,protocol=LL"], "protocol cannot change it"),
        (["run", "allreduce:R=2", "--engine", "cuda"], "tables are for CPUs"),
        (["tune", "--engine", "threads", "-t", "ndv4"], "--topology simulates, and --engine measures"),
    ],
)
def test_mistakes_on_the_command_line(line: list[str], said: str) -> None:
    done = CliRunner().invoke(main, line)
    assert done.exit_code == 2
    assert said in " ".join(done.output.split())


def test_where_a_table_was_measured_is_told_and_checked() -> None:
    def read(**head: object) -> str:
        text = json.dumps({"format": "gc3-selection-1", **head, "rows": [{**_ROW, "note": "why"}]})
        return parse(text, "t.json")[0].note

    assert read() == read(engine="processes") == "why"
    assert read(engine="threads", measured_on=["a machine"]) == "why; measured on a machine; ranks were threads"
    assert read(engine="sim") == "why; predicted"
    for wrong in ("cuda", None, ["threads"]):
        with pytest.raises(errors.UserError, match=r'"engine" is .* expected one of processes, threads, sim'):
            read(engine=wrong)


def test_points_of_another_engine_do_not_count(tmp_path: Path) -> None:
    file = str(tmp_path / "t.json")
    line = ["tune", "scatter", "--ranks", "2", "-b", "1KiB", "-e", "1KiB", "-o", file, "--engine"]
    cli(*line, "threads")
    for engine, said in (("threads", "1 point known"), ("processes", "was measured with engine threads")):
        done = CliRunner().invoke(main, [*line, engine, "--time-limit", "0.01"])
        assert said in " ".join(done.output.split())


def test_a_program_that_threads_cannot_run_is_left_out() -> None:
    with ThreadTimer(4) as _, pytest.raises(WorldError, match="no_such_algorithm"):
        ThreadTimer(4).seconds(Spec("no_such_algorithm", ()), "allreduce", 64, 0, 1, in_place=False)
    # An engine refuses fewer slots than the program needs.
    many = Spec("ring_allreduce", (("R", "ranks"),), slots=2**31)
    with pytest.raises(WorldError, match="slots per connection"):
        ThreadTimer(4).seconds(many, "allreduce", 64, 0, 1, in_place=False)


@pytest.mark.usefixtures("cache")
def test_thresholds_of_a_row_reach_the_ranks_of_a_tool() -> None:
    program = Table.default().choose("scatter", ranks=2, size=8, in_place=False).row.spec.compile(2)
    with pytest.raises(errors.Gc3Error, match="no_such"):
        Ranks(program, thresholds=(("no_such", 1),))
    keep("processes", {"collective": "scatter", "program": {**_ROW["program"], "algorithm": "flat_scatter",
                       "parameters": {"R": "ranks", "root": "root"}, "thresholds": {"read_moved": None}}})  # fmt: skip
    ran = json.loads(cli("run", "scatter:R=2", "--size", "64KiB", "--engine", "processes", "--json"))
    assert ran["chosen_by"].startswith(str(kept.path("processes")))
    assert ran["check"]["ok"]
