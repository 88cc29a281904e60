"""gc3 synth best: the search, its table, and what takes it."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import click.testing
import pytest
from click.testing import CliRunner

import ranks
from gc3 import errors, sim, synth, topologies
from gc3.cli.main import main
from gc3.comm import programs
from gc3.comm.selection import Table, read_rows
from gc3.runtime.program import Program
from gc3.tune import Best, Search
from gc3.tune.guided_search import MOST

pytestmark = pytest.mark.python_only

# Two of its links are four times as fast as the third, which programs of the library do not spare.
SLOW_LINK = str(Path(__file__).parents[1] / "data" / "slow_link.json")
MACHINE = ["-t", f"{SLOW_LINK}:preset=v100"]
MIB = 1 << 20


def gc3(*arguments: str) -> click.testing.Result:
    return CliRunner().invoke(main, list(arguments))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A table for three ranks, and what the command printed."""
    file = tmp_path_factory.mktemp("best") / "table.json"
    said = gc3(
        "synth", "best", "allgather", *MACHINE, "-b", "1KiB", "-e", "16MiB", "-f", "128", "-o", str(file), "--json"
    )
    assert said.exit_code == 0, said.output
    return file, json.loads(said.output)


def test_the_library_is_never_faster(made: tuple[Path, dict[str, Any]]) -> None:
    file, said = made
    assert said["finished"]
    assert [point["size"] for point in said["points"]] == [1 << 10, 128 << 10, 16 * MIB]
    assert all(point["time_us"] <= point["library_us"] for point in said["points"])
    assert said["points"][-1]["synthesized"]
    assert all(point["time_us"] > point["bound_us"] > 0 for point in said["points"])
    assert said["points"][0]["bound"].startswith("what must ")
    on = sim.platform(SLOW_LINK, "v100")
    rows = {point["size"]: Table.read(file).choose("allgather", ranks=3, size=point["size"], in_place=False).row
            for point in said["points"]}  # fmt: skip
    for point in said["points"]:
        spec = rows[point["size"]].spec
        predicted = sim.Simulation(spec.compile(3), on.with_fifos(spec.slots, spec.slot_bytes)).run(point["size"])
        assert predicted.time_us <= point["library_us"]
        assert predicted.time_us == pytest.approx(point["time_us"], rel=0.006)


def test_every_row_is_good(made: tuple[Path, dict[str, Any]]) -> None:
    file, _ = made
    checked = gc3("table", "check", str(file))
    assert checked.exit_code == 0, checked.output
    assert "program " in gc3("table", "show", str(file), "--ranks", "3").output


def test_its_programs_name_no_place_of_this_machine(made: tuple[Path, dict[str, Any]]) -> None:
    file, _ = made
    files = list(programs.folder(file).iterdir())
    assert files
    assert not any(b".py" in each.read_bytes() for each in files)


def test_ranks_run_its_programs(made: tuple[Path, dict[str, Any]]) -> None:
    file, _ = made
    for said in ranks.run(ranks.program("allgather_by_table"), 3, arguments=[str(file), str(4 * MIB // 3)]):
        served = said.strip().split(";")
        assert all(text.startswith("program ") for text in served)
        assert served[0] != served[1]  # each mode has its own


def test_tune_takes_its_programs(made: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    file, _ = made
    out = tmp_path / "tuned.json"
    line = ["tune", *MACHINE, "allgather", "-b", "16MiB", "-e", "16MiB"]
    said = gc3(*line, "--with", str(file), "-o", str(out))
    assert said.exit_code == 0, said.output
    (row,) = read_rows(out)
    assert row.spec.is_file
    assert Path(row.spec.algorithm).parent.parent == tmp_path  # the program was copied beside the new table
    assert row.spec.compile(3).collective.name == "allgather"


@pytest.fixture
def few_simulations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gc3.tune.best.MOST", 30)
    monkeypatch.setattr("gc3.tune.best._MOST", 30)


@pytest.mark.usefixtures("few_simulations")
def test_its_programs_are_files_for_other_runtimes(tmp_path: Path) -> None:
    file = tmp_path / "msccl.json"
    line = ("synth", "best", "allgather", *MACHINE, "-b", "1KiB", "-e", "16MiB", "-f", "128", "-o", str(file))
    assert gc3(*line, "--target", "msccl").exit_code == 0
    said = gc3("export", str(file), "--ranks", "3", "--target", "msccl", "-o", str(tmp_path), "--json")
    assert said.exit_code == 0, said.output
    found = json.loads(said.output)
    assert found["refused"] == []
    assert len(found["files"]) == len({*found["files"]}) == len(list(tmp_path.glob("*.xml")))
    whole = Program.load(tmp_path / "allgather-3ranks-90B.xml")
    assert whole.use is not None
    assert whole.use.min_bytes == 90
    assert whole.verify().ok
    exported = gc3("table", "export", str(file), "--ranks", "3", "-o", str(tmp_path / "c++"))
    assert exported.exit_code == 0, exported.output


@pytest.mark.usefixtures("few_simulations")
def test_programs_for_a_runtime_are_within_its_limits(tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    line = ["synth", "best", "allgather", *MACHINE, "-b", "16MiB", "-e", "16MiB", "-o", str(file)]
    said = gc3(*line, "--target", "rccl", "--max-threadblocks", "6")
    assert said.exit_code == 0, said.output
    assert all(max(row.spec.compile(3, in_place=bool(row.limits.in_place)).core.threadblocks_per_rank) <= 6
               for row in read_rows(file))  # fmt: skip
    said = gc3("export", str(file), "--ranks", "3", "--target", "rccl", "-o", str(tmp_path / "xml"), "--json")
    assert json.loads(said.output)["refused"] == []


@pytest.mark.usefixtures("few_simulations")
def test_rooted_programs_serve_their_root(tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    line = ["synth", "best", "broadcast", "-t", "line:R=4,preset=v100", "-b", "16MiB", "-e", "16MiB"]
    said = gc3(*line, "--root", "2", "-o", str(file))
    assert said.exit_code == 0, said.output
    rows = read_rows(file)
    assert {row.limits.root for row in rows} == {2}
    assert rows[0].spec.compile(4, root=2, in_place=True).collective.root == 2
    with pytest.raises(errors.UserError, match=r"GC3-R014.*root 2"):
        rows[0].spec.compile(4, root=0, in_place=True)
    assert gc3("table", "check", str(file)).exit_code == 0


def test_a_program_that_was_changed_is_refused(made: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    file, _ = made
    row = next(row for row in read_rows(file) if row.spec.is_file and not row.limits.in_place)
    with pytest.raises(errors.UserError, match=r"GC3-R014.*on 3 ranks, out of place"):
        row.spec.compile(4)
    with pytest.raises(errors.UserError, match=r"GC3-R014.*on 3 ranks, out of place"):
        row.spec.compile(3, in_place=True)
    (tmp_path / "t.json").write_text(file.read_text())
    said = gc3("table", "check", str(tmp_path / "t.json"))
    assert said.exit_code == 1
    assert "cannot read the file" in said.output
    copied = tmp_path / programs.place(row.spec.algorithm)
    copied.parent.mkdir()
    copied.write_bytes(Path(row.spec.algorithm).read_bytes()[:-1] + b"x")
    with pytest.raises(errors.UserError, match=r"GC3-R014.*was changed"):
        replace(row.spec, algorithm=str(copied)).compile(3)


@pytest.mark.parametrize(
    "file", ["../{}", "{}", "a/b/{}", "/etc/{}", "a/x.gc3", "./{}", "a/{}.txt", "a/../{}"], ids=lambda name: name
)
def test_programs_are_beside_the_table(file: str, tmp_path: Path) -> None:
    rows = [{"collective": "allgather", "program": {"file": file.format(64 * "0" + ".gc3")}}]
    (tmp_path / "t.json").write_text(json.dumps({"format": "gc3-selection-1", "rows": rows}))
    with pytest.raises(errors.UserError, match=r"GC3-R014.*row 1: file is "):
        read_rows(tmp_path / "t.json")


def test_what_was_found_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "t.json"

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    line = ["synth", "best", "allgather", *MACHINE, "-b", "1KiB", "-e", "1KiB", "-o", str(file)]
    with monkeypatch.context() as patched:
        patched.setattr(Best, "synthesized", interrupted)
        assert gc3(*line).exit_code == 130
    (row,) = read_rows(file)
    assert not row.spec.is_file
    said = gc3(*line, "--time-limit", "1e-9")
    assert said.exit_code == 1
    assert "the search was cut short" in said.output
    assert f"nothing was found; {file} is as it was" in said.output
    assert read_rows(file) == (row,)


def test_a_simulation_that_takes_too_long_ends_at_the_limit(tmp_path: Path) -> None:
    begun = time.monotonic()
    said = gc3("synth", "best", "allreduce", "-t", "dgx1", "-b", "64TiB", "-e", "64TiB", "--time-limit", "1",
               "-o", str(tmp_path / "t.json"))  # fmt: skip
    assert said.exit_code == 1  # nothing was found
    assert "the search was cut short" in said.output
    assert time.monotonic() - begun < ranks.LONGEST  # the first simulation alone takes a minute


def test_the_library_is_cut_short_within_a_size() -> None:
    search = Best("allgather", sim.platform("ndv4"))
    search.library([1 << 30], lambda _: None, time.monotonic())
    assert search.found[1 << 30].tried < MOST


@pytest.mark.usefixtures("few_simulations")
def test_mistakes(tmp_path: Path) -> None:
    out = ["-o", str(tmp_path / "t.json")]
    for line, why in (
        ((*MACHINE, "-b", "2KiB", "-e", "1KiB", *out), "the largest size"),
        ((*MACHINE, "--root", "3", *out), "has no rank 3"),
        ((*MACHINE, "-o", "/dev/null"), "is no file"),
        ((*MACHINE, "-b", "0", *out), "the smallest size is 0"),
        (("-t", "ring:R=1", *out), "has one rank"),
    ):
        said = gc3("synth", "best", "allgather", *line)
        assert said.exit_code in (1, 2), said.output
        assert why in said.output
    few = gc3("synth", "best", "alltoall", "-t", "dgx1", "-b", "1KiB", "-e", "1KiB", "--max-threadblocks", "1",
              *out)  # fmt: skip
    assert "no program has so few threadblocks" in few.output
    assert "inf" not in few.output
    (tmp_path / "rows.txt").write_text("best allgather -t dgx1 -o t.json")
    assert "cannot contain best" in gc3("synth", str(tmp_path / "rows.txt")).output


def test_a_program_keeps_the_promise_of_its_schedule() -> None:
    """(6, 3, 7) needs 7/6 rounds for each chunk, (2, 2, 3) 3/2: as programs, the first must be faster as well."""
    on = sim.platform("dgx1")
    found: dict[str, synth.Result] = {}
    with synth.Solvers() as solvers:
        task = synth.Task(synth.Session(synth.Network.of(topologies.load("dgx1")), solvers), "allgather")
        for instance in ((2, 2, 3), (6, 3, 7)):
            result = task.solve(*instance, prove=False).result
            assert result is not None
            found[str(instance)] = result
    times = [
        Search("allgather", on, 8, in_place=False, most=40, schedules={name: each}).fastest(1 << 30)[0][0][1]
        for name, each in found.items()
    ]
    assert times[1] < times[0] / 1.15
