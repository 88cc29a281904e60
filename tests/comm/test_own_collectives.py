"""Custom collectives: tuned, kept in tables, and served by communicators and `gc3.select`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import gc3
import ranks
from gc3 import collectives, sim
from gc3.cli.main import main
from gc3.comm.selection import Table, parse
from gc3.comm.spec import Spec
from gc3.tune import Goal, Measured, Own, Search, Tuner
from gc3.tune.timers import ThreadTimer

pytestmark = pytest.mark.python_only

_SWAP = '''
from gc3 import algorithm, chunk, collectives


def mirror(R: int) -> collectives.Collective:
    """Every rank gets the data of the one opposite."""
    alias = [("input", 0)] * R
    return collectives.custom(
        "mirror", inputs=[2] * R, outputs=[2] * R, expect=lambda rank, index: (R - 1 - rank, index), alias=alias
    )


@algorithm(mirror)
def swap(R: int, pieces: int = 1) -> None:
    for rank in range(R):
        for part in range(0, 2, 2 // pieces):
            chunk(rank, "in", part, 2 // pieces).copy(R - 1 - rank, "out", part)


@algorithm(lambda R: collectives.custom("open", inputs=[1] * R, outputs=[1] * R, expect="whatever it makes"))
def undefined(R: int) -> None:
    chunk(0, "in", 0).copy(1, "out", 0)


@algorithm(lambda: collectives.custom("three", inputs=[1, 0, 0], outputs=[0, 0, 1], expect=lambda r, i: (0, 0)))
def three() -> None:
    chunk(0, "in", 0).copy(2, "out", 0)
'''


@pytest.fixture
def swap(tmp_path: Path) -> Path:
    file = tmp_path / "swap.py"
    file.write_text(_SWAP)
    return file


def gc3_(*line: object) -> str:
    done = CliRunner().invoke(main, [*map(str, line)])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every program takes as long, so that none is timed again and again."""

    def seconds(timer: ThreadTimer, spec: Spec, *_: object, **__: object) -> tuple[float, ...]:
        spec.compile(timer._ranks)  # pyright: ignore[reportPrivateUsage]
        return (1.0,)

    monkeypatch.setattr(ThreadTimer, "seconds", seconds)


def tuned(swap: Path, *line: str) -> Path:
    """The table of a run of `gc3 tune` on threads."""
    file = swap.parent / "t.json"
    sizes = ("--ranks", "2", "-b", "1KiB", "-e", "1KiB")
    gc3_("tune", f"{swap}:swap", "--engine", "threads", *sizes, "-o", file, *line)
    return file


def table_of(swap: Path, condition: str, **row: object) -> Path:
    program = {"algorithm": f"{swap}:swap", "parameters": {"R": "ranks", "pieces": 2}}
    full = {"collective": "mirror", "condition": condition, "size": [0, 1 << 20], "program": program, **row}
    file = swap.parent / "t.json"
    file.write_text(json.dumps({"format": "gc3-selection-1", "rows": [full]}))
    return file


def mirror() -> collectives.Collective:
    return collectives.custom(
        "mirror", inputs=[2, 2], outputs=[2, 2], expect=lambda r, i: (1 - r, i), alias=[("input", 0)] * 2
    )


@pytest.mark.waits
def test_ranks_run_a_collective_by_its_definition(swap: Path) -> None:
    table = table_of(swap, collectives.condition(mirror()))
    ranks.run(ranks.program("own_collective"), 2, arguments=[table])


@pytest.mark.waits
@pytest.mark.parametrize(
    ("mode", "own", "others"),
    [
        ("changed", "a 'mirror' of another condition", "rank 1"),
        ("unknown", "no row serves elsewhere", "rank 1"),
        ("stricter", "a 'mirror' of another condition", "rank 1"),
    ],
)
def test_ranks_with_other_definitions_are_told_at_once(swap: Path, mode: str, own: str, others: str) -> None:
    table = table_of(swap, collectives.condition(mirror()))
    results = ranks.start(ranks.program("own_collective"), 2, arguments=[table, mode]).finish()
    (first, said), (second, refused) = results
    assert (first, second) == (0, 0), results
    assert own in refused
    assert others in said
    assert "GC3-R010" in said  # and no time-out


@pytest.mark.waits
def test_ranks_whose_tables_serve_both_definitions_are_told(swap: Path) -> None:
    stricter = collectives.custom(
        "mirror",
        inputs=[2, 2],
        outputs=[2, 2],
        expect=lambda r, i: None if i == 1 else (1 - r, i),
        alias=[("input", 0)] * 2,
    )
    table = table_of(swap, collectives.condition(mirror()))
    rows = json.loads(table.read_text())
    weak = swap.parent / "weak.py"
    weak.write_text(_SWAP.replace("(R - 1 - rank, index)", "None if index == 1 else (R - 1 - rank, index)"))
    row = rows["rows"][0]
    program = {**row["program"], "algorithm": f"{weak}:swap"}
    rows["rows"].append({**row, "condition": collectives.condition(stricter), "program": program})
    table.write_text(json.dumps(rows))
    for _, said in ranks.start(ranks.program("own_collective"), 2, arguments=[table, "stricter"]).finish():
        assert "GC3-R010" in said, said
        assert "program" in said


def _sum_on_rank_0(rank: int, _: int) -> list[tuple[int, int]] | None:
    return None if rank else [(0, 0), (1, 0)]


def test_a_digest_is_of_what_a_caller_relies_on() -> None:
    def of(**changed: object) -> str:
        given = {"inputs": [1, 1], "outputs": [1, 1], "expect": {(0, 0): [(0, 0), (1, 0)]}} | changed
        return collectives.condition(collectives.custom("c", **given))  # pyright: ignore[reportArgumentType]

    assert len(of()) == 64
    assert of(expect={(0, 0): [(1, 0), (0, 0)]}) == of(expect=_sum_on_rank_0) == of()
    other = [
        of(expect={(0, 0): [(0, 0), (0, 0), (1, 0)]}),
        of(expect={(1, 0): [(0, 0), (1, 0)]}),
        of(inputs=[2, 1]),
        of(outputs=[1, 2]),
        of(alias=[("input", 0), None]),
        of(alias=[("input", 0), ("input", 0)]),
        of(alias=[("output", 0), ("input", 0)]),
    ]
    assert len({of(), *other}) == len(other) + 1
    program = gc3.SourceProgram("p", mirror(), in_place=False)
    assert program.model.condition == collectives.condition(mirror())


def test_instances_and_files_keep_the_condition(swap: Path) -> None:
    program = gc3.compile(gc3.algorithms.load(f"{swap}:swap"), R=2, instances=3)
    file = swap.parent / "p.gc3"
    program.save(file)
    assert gc3.Program.load(file).collective.condition == collectives.condition(mirror())


def test_threads_are_served_by_what_was_tuned(swap: Path) -> None:
    file = tuned(swap)
    (row,) = json.loads(file.read_text())["rows"]
    assert row["condition"] == collectives.condition(mirror())
    assert row["program"]["algorithm"] == f"{swap}:swap"
    found = gc3.select(mirror(), ranks=2, size=1024, table=file)
    xs = [np.arange(4.0), np.arange(4.0) + 9]
    assert [y.tolist() for y in found.run(xs) if y is not None] == [xs[1].tolist(), xs[0].tolist()]
    assert "1 row: good" in gc3_("table", "check", file)
    assert "mirror, 2 ranks" in gc3_("table", "show", file)
    left = gc3_("table", "export", file, "--ranks", "1", "-o", swap.parent / "programs")
    assert "left out" in left
    # A changed definition is measured again, and not served by the row of the other one.
    swap.write_text(_SWAP.replace("(R - 1 - rank, index)", "None if index == 1 else (R - 1 - rank, index)"))
    assert "another condition" in _problem("table", "check", file)
    with pytest.raises(gc3.UserError, match="its condition differs"):
        gc3.select(mirror(), ranks=2, size=1024, table=file)


def _problem(*line: object) -> str:
    done = CliRunner().invoke(main, [*map(str, line)])
    assert done.exit_code in (1, 2), done.output
    return " ".join(done.output.split())


@pytest.mark.usefixtures("quick")
def test_parameters_of_own_algorithms_are_searched(swap: Path) -> None:
    file = swap.parent / "t.json"
    line = [f"{swap}:swap:pieces=1+2", "--engine", "threads", "--ranks", "2", "-b", "64", "-e", "64", "-o", file]
    (point,) = json.loads(gc3_("tune", *line, "--json"))["points"]
    tried = {time["program"]["algorithm"] for time in point["times"]}
    assert {each.rpartition(":")[2] for each in tried} == {"pieces=1", "pieces=2"}


@pytest.mark.usefixtures("quick")
def test_a_number_of_ranks_of_its_own_needs_no_option(swap: Path) -> None:
    file = swap.parent / "t.json"
    gc3_("tune", f"{swap}:three", "--engine", "threads", "-b", "64", "-e", "64", "-o", file)
    (row,) = json.loads(file.read_text())["rows"]
    assert row["ranks"] == [3, 3]
    said = _problem("tune", f"{swap}:three", "--engine", "threads", "--ranks", "2", "-o", file)
    assert "is for 3 ranks, not for 2" in said


def test_points_of_another_condition_do_not_count() -> None:
    def own(condition: str) -> Own:
        return Own("/a.py:f", "mirror", "1", 2, condition)

    spec = Spec("/a.py:f", ())
    point = Measured("mirror", 2, 64, False, ((spec, 1.0),), None, 1, own=(own("a"),))
    for condition, left in (("a", 1), ("b", 0)):
        goal = Goal(("mirror",), (2,), (64, 128), own=(own(condition),))
        assert len(Tuner(goal, [point]).measured) == left
    assert Tuner(Goal(("gather",), (2,), (64,)), [point]).measured  # those of other commands stay


def test_a_machine_is_simulated(swap: Path) -> None:
    search = Search("mirror", sim.platform("ndv4"), 8, in_place=False, own=[f"{swap}:swap"], most=10)
    assert {spec.algorithm for spec, _ in search.fastest(1 << 20)[0]} == {f"{swap}:swap"}
    file = swap.parent / "t.json"
    gc3_("tune", f"{swap}:swap", "-t", "ndv4", "-b", "1MiB", "-e", "1MiB", "-o", file)
    (row,) = json.loads(file.read_text())["rows"]
    assert (row["collective"], row["ranks"]) == ("mirror", [8, 8])


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{}:undefined --ranks 2", "defined by what a program makes"),
        ("{}:swap {}/other.py:swap --ranks 2", "two conditions on 2 ranks"),
    ],
)
def test_what_a_table_cannot_have(line: str, said: str, swap: Path) -> None:
    other = swap.parent / "other.py"
    other.write_text(_SWAP.replace("(R - 1 - rank, index)", "None if index == 1 else (R - 1 - rank, index)"))
    words = line.replace("{}/", f"{swap.parent}/").replace("{}", str(swap)).split()
    assert said in _problem("tune", *words, "--engine", "threads", "-o", swap.parent / "t.json")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"collective": "mirror"}, "there is no collective 'mirror'"),
        ({"collective": "mirror", "condition": "12"}, "condition is '12'"),
        ({"collective": "allreduce", "condition": 64 * "0"}, "there is no collective 'allreduce'"),
        ({"collective": 1, "condition": 64 * "0"}, "collective is 1"),
    ],
)
def test_rows_of_tables_that_name_no_collective(row: dict[str, object], said: str) -> None:
    text = json.dumps({"format": "gc3-selection-1", "rows": [{**row, "program": {"algorithm": "ring_allreduce"}}]})
    with pytest.raises(gc3.UserError, match=said):
        parse(text, "t.json")


def test_a_row_whose_program_has_another_condition_is_refused(swap: Path) -> None:
    file = table_of(swap, 64 * "0")
    assert "another condition" in _problem("table", "check", file)
    other = collectives.condition(mirror())
    with pytest.raises(gc3.UserError, match="a 'mirror' of another condition, 000000000000"):
        Table.read(file).choose("mirror", ranks=2, size=64, in_place=False, condition=other)


@pytest.mark.parametrize("name", ["allreduce", "whatever"])
def test_collectives_that_no_table_can_have(name: str) -> None:
    wanted = "whatever it makes" if name == "whatever" else {(0, 0): (0, 0)}
    given = collectives.custom(name, inputs=[1], outputs=[1], expect=wanted)
    with pytest.raises(gc3.UserError, match=r"the name of a built-in collective|defined by what a program makes"):
        collectives.condition(given)
