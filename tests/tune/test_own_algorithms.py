"""gc3 tune with algorithms of the user's."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from gc3 import _core, sim
from gc3.cli.main import main
from gc3.comm import programs
from gc3.comm.selection import Row, Table
from gc3.comm.spec import Spec
from gc3.tune import Goal, Measured, Own, Record, Search, Tuner

pytestmark = pytest.mark.python_only

_GATHER = {"R": "ranks", "root": "root"}
_MINE = '''
from gc3 import algorithm, chunk


@algorithm("gather", root=lambda root: root)
def mine(R: int, root: int = 0) -> None:
    """Every rank sends its data to the root."""
    for rank in range(R):
        chunk(rank, "in", 0).copy(root, "out", rank)
'''


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    file = tmp_path / "mine.py"
    file.write_text(_MINE)
    return file


def tune(*line: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, ["tune", *line])
    return done.exit_code, " ".join(done.output.split())


def points(*line: str) -> list[dict[str, object]]:
    done = CliRunner().invoke(main, ["tune", *line, "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)["points"]


@pytest.mark.parametrize("engine", ["threads", pytest.param("processes", marks=pytest.mark.nightly)])
def test_algorithms_of_the_user_are_tried(engine: str, mine: Path, tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    line = [f"{mine}:mine", "--engine", engine, "--ranks", "2", "-b", "1KiB", "-e", "1KiB", "-o", str(file)]
    (point,) = points(*line)
    assert point["collective"] == "gather"
    (without,) = points("gather", *line[1:], "-o", str(tmp_path / "u.json"))
    assert point["tried"] > without["tried"]


def test_algorithms_of_the_user_are_simulated(mine: Path) -> None:
    search = Search("gather", sim.platform("ndv4"), 2, in_place=False, own=[f"{mine}:mine"], most=30)
    found, count = search.fastest(1024)
    assert count == 30  # all searches have as many, whatever they look among
    assert f"{mine}:mine" in {spec.algorithm for spec, _ in found}


def test_a_table_names_the_algorithm_by_its_place(mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def seconds(_: object, spec: object, *__: object, **___: object) -> tuple[float, ...]:
        return (1.0 if "mine.py" in str(spec) else 2.0,)

    monkeypatch.setattr("gc3.tune.timers.ThreadTimer.seconds", seconds)
    monkeypatch.chdir(tmp_path)
    line = ["mine.py:mine", "--engine", "threads", "--ranks", "2", "-b", "1KiB", "-e", "1KiB", "-o", "t.json"]
    status, said = tune(*line)
    assert status == 0, said
    (row,) = json.loads(Path("t.json").read_text())["rows"]
    assert row["program"]["algorithm"] == f"{mine}:mine"
    program = (
        Table.read("t.json").choose("gather", ranks=2, size=1024, in_place=False, root=1).row.spec.compile(2, root=1)
    )
    assert (program.name, program.collective.root) == ("mine", 1)
    # What is known counts until the algorithm changes.
    said = tune(*line)[1]
    assert "1 point known" in said
    assert "gather, 2 ranks" not in said
    (known,) = Record("t.json", fresh=False, engine="threads").points
    assert [own.spec for own in known.own] == [f"{mine}:mine"]


_TREE = '''
from gc3 import algorithm, chunk


@algorithm("broadcast", in_place=True)
def tree(R: int, root: int = 0, width: int = 2) -> None:
    """Every rank passes the data on to so many others."""
    for rank in range(1, R):
        chunk((root + (rank - 1) // width) % R, "out", 0).copy((root + rank) % R, "out", 0)
'''


def test_values_of_other_parameters_are_a_range(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    def seconds(_: object, spec: Spec, *__: object, **___: object) -> tuple[float, ...]:
        tried.append(spec.algorithm)
        return (1.0 if spec.algorithm.endswith("width=3") else 2.0,)

    monkeypatch.setattr("gc3.tune.timers.ThreadTimer.seconds", seconds)
    monkeypatch.chdir(tmp_path)
    Path("tree.py").write_text(_TREE)
    line = ["--engine", "threads", "--ranks", "4", "-b", "1KiB", "-e", "1KiB", "-o", "t.json"]
    status, said = tune("tree.py:tree:width=1+3", *line)
    assert status == 0, said
    place = tmp_path / "tree.py"
    assert {f"{place}:tree:width=1", f"{place}:tree:width=3"} < set(tried)
    (row,) = json.loads(Path("t.json").read_text())["rows"]
    assert row["program"]["algorithm"] == f"{place}:tree:width=3"
    assert row["program"]["parameters"] == {"R": "ranks", "root": "root"}
    chosen = Table.read("t.json").choose("broadcast", ranks=4, size=1024, in_place=True, root=2).row.spec
    program = chosen.compile(4, root=2, in_place=True)
    assert sorted(src for src, *_ in program.core.sends()) == [2, 2, 2]  # the root sends to all three
    for spec, told in {
        "tree.py:tree:width=a": "expected PATH.py:FUNCTION:NAME=NUMBER",
        "tree.py:tree:height=1": "'tree' has no parameter 'height'; it takes R, root=0, width=2",
        "tree.py:tree:R=2": "gc3 tune tries values of R by itself",
        "tree.py:tree:width=1,3": "'3' of 'tree.py:tree:width=1,3' is not NAME=VALUE+VALUE+...",
    }.items():
        status, said = tune(spec, *line)
        assert status != 0
        assert told in said


def test_points_are_measured_again_for_another_algorithm(monkeypatch: pytest.MonkeyPatch) -> None:
    first, changed = Own("/a.py:f", "gather", "1"), Own("/a.py:f", "gather", "2")
    default = Table.default().choose("gather", ranks=2, size=64, in_place=False).row.spec
    point = Measured(
        "gather", 2, 64, in_place=False, times_us=((default, 1.0),), default=default, tried=1, own=(first,)
    )

    def done(*own: Own) -> bool:
        return Tuner(Goal(("gather",), (2,), (64,), own=own), [point]).found.finished

    assert done()
    assert done(first)
    assert not done(changed)
    assert not done(first, Own("/b.py:g", "gather", "1"))
    assert done(first, Own("/b.py:g", "scatter", "1"))
    # It stays in the table until then.
    assert Tuner(Goal(("gather",), (2,), (64,), own=(changed,)), [point]).found.points


def test_a_changed_module_beside_an_algorithm_is_another_algorithm(
    mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gc3.tune.timers.ThreadTimer.seconds", lambda *_, **__: (1.0,))
    monkeypatch.chdir(tmp_path)
    helper = tmp_path / "channel_of_mine.py"
    with_helper = _MINE.replace("from gc3", "import channel_of_mine\nfrom gc3")
    mine.write_text(with_helper.replace('"out", rank)', '"out", rank, ch=channel_of_mine.of(rank))'))
    line = ["mine.py:mine", "--engine", "threads", "-b", "1KiB", "-e", "1KiB", "-o", "t.json", "--ranks"]
    measured: list[list[int]] = []
    for channel, ranks in (("0", "2,4"), ("0", "4"), ("rank // 2", "2,4")):
        helper.write_text(f"def of(rank):\n    return {channel}\n")
        sys.modules.pop("channel_of_mine", None)
        status, said = tune(*line, ranks)
        assert status == 0, said
        measured.append([count for count in (2, 4) if f"gather, {count} ranks" in said])
    assert measured == [[2, 4], [], [4]]  # of two ranks the program is the same


def test_points_are_measured_again_for_another_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gc3.tune.timers.ThreadTimer.seconds", lambda *_, **__: (1.0,))
    monkeypatch.chdir(tmp_path)
    line = ["gather", "--engine", "threads", "--ranks", "2", "-b", "1KiB", "-e", "1KiB", "-o", "t.json"]

    def measures(*instances: int) -> bool:
        programs = [{"algorithm": "chain_gather", "parameters": _GATHER, "instances": n} for n in instances]
        rows = [{"collective": "gather", "program": program} for program in programs]
        Path("best.json").write_text(json.dumps({"format": "gc3-selection-1", "rows": rows}))
        status, said = tune(*line, *(["--with", "best.json"] if instances else []))
        assert status == 0, said
        return "gather, 2 ranks" in said

    assert [measures(*some) for some in ((), (5,), (), (5,), (5, 6), (6,))] == [True, True, False, False, True, False]


@pytest.mark.parametrize("fixed", [("root", 0), None])
def test_a_program_for_one_root_serves_no_other(
    fixed: tuple[str, int] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program file of `gc3 synth best`, or an algorithm whose root is a number or not given."""
    parameters = {"R": "ranks"} | ({} if fixed is None else dict([fixed]))
    spec = Spec("chain_gather", tuple(parameters.items()))
    of_file = Spec(programs.write(spec.compile(4), tmp_path / "best.json"), ())
    monkeypatch.chdir(tmp_path)
    for tried in (spec, of_file):
        monkeypatch.setattr(
            "gc3.tune.timers.ThreadTimer.seconds", lambda _, spec, *__, t=tried, **___: (1.0 if spec == t else 2.0,)
        )
        row = {"collective": "gather", "ranks": [4, 4], "in_place": False, "root": 0, "program": tried.data()}
        Path("best.json").write_text(json.dumps({"format": "gc3-selection-1", "rows": [row]}))
        line = ["gather", "--engine", "threads", "--ranks", "4", "-b", "1KiB", "-e", "1KiB", "-o", "t.json"]
        status, said = tune(*line, "--with", "best.json", "--fresh")
        assert status == 0, said
        found = Table.read("t.json")
        assert (found.rows[0].spec, found.rows[0].limits.root) == (tried, 0)
        chosen = found.choose("gather", ranks=4, size=1024, in_place=False, root=1).row.spec
        assert chosen.compile(4, root=1).collective.root == 1


def test_only_rows_that_serve_calls_of_the_root_0_are_tried() -> None:
    """That is the root of all calls that are measured."""
    rows = [Row("gather", _core.Limits(root=root), Spec(f"{root}", ()), "", "") for root in (None, 0, 1)]
    tried = Goal(("gather",), (4,), (1024,), also=tuple(rows)).further("gather", 4, in_place=False)
    assert [spec.algorithm for spec in tried] == ["None", "0"]


def test_mistakes_with_algorithms_of_the_user(mine: Path, tmp_path: Path) -> None:
    out = ["--ranks", "2", "-o", str(tmp_path / "t.json")]
    status, said = tune("ring_allreduce", *out)
    assert (status, "is neither PATH.py:FUNCTION nor one of allreduce" in said) == (2, True)
    status, said = tune(f"{mine}:other", *out)
    assert (status, "has no algorithm 'other'" in said) == (1, True)
    mine.write_text(
        _MINE.replace("R: int,", "P: int,")
        .replace("range(R)", "range(P)")
        .replace("root=l", "ranks=lambda P: P, root=l")
    )
    status, said = tune(f"{mine}:mine", *out)
    assert status == 1
    assert "has the parameters P, root" in said
    mine.write_text(_MINE.replace("chunk(rank", "[][rank]; chunk(rank"))
    status, said = tune(f"{mine}:mine", *out)
    assert status == 1
    assert "IndexError" in said
    assert "Traceback" not in said
    mine.write_text(_MINE.replace('copy(root, "out", rank)', 'copy(root, "out", 0)'))
    status, said = tune(f"{mine}:mine", *out)
    assert status == 1
    assert "mine.py" in said


def test_the_collective_of_the_tutorial_is_tuned_for_its_own_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "tutorial.md").read_text()
    monkeypatch.setattr("gc3.tune.timers.ThreadTimer.seconds", lambda *_, **__: (1.0,))
    monkeypatch.chdir(tmp_path)
    Path("halo.py").write_text(page.partition('```python title="halo.py"\n')[2].partition("```")[0])
    status, said = tune("halo.py:exchange", "--engine", "threads", "-b", "1KiB", "-e", "1KiB", "-o", "t.json")
    assert status == 0, said
    (row,) = json.loads(Path("t.json").read_text())["rows"]
    assert (row["collective"], row["ranks"]) == ("halo", [4, 4])
