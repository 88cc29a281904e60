"""Communicators that learn while their calls run which programs are the fastest."""

from __future__ import annotations

import contextlib
import json
import signal
from pathlib import Path

import pytest
from click.testing import CliRunner

import gc3
import ranks
from gc3 import _core
from gc3.cli.main import main
from gc3.comm import adapting, generating, kept
from gc3.comm.generating import neighbours
from gc3.comm.selection import Table
from gc3.comm.spec import Spec

pytestmark = pytest.mark.waits

PROGRAM = ranks.program("adapting")


def table_of(folder: Path, **more: object) -> Path:
    """A table whose program for AllReduce adds along a ring."""
    row = {"collective": "allreduce", "program": {"algorithm": "ring_allreduce"}, **more}
    path = folder / "mine.json"
    path.write_text(json.dumps({"format": "gc3-selection-1", "rows": [row]}))
    return path


@pytest.mark.python_only
def test_all_forms_of_calls_learn_while_ranks_are_apart() -> None:
    assert ranks.run(PROGRAM, 3, arguments=["forms"]) == ["right\n"] * 3


def test_results_are_the_same_bits_where_that_is_wished(tmp_path: Path) -> None:
    said = ranks.run(PROGRAM, 4, arguments=["bits", table_of(tmp_path)])
    assert "programs that add in the row's order after " in said[0]
    assert said == said[:1] * 4


@pytest.mark.python_only
def test_what_was_learned_is_kept_shown_and_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = {"GC3_CACHE": str(tmp_path / "cache")}
    monkeypatch.setenv("GC3_CACHE", cache["GC3_CACHE"])
    first = ranks.run(PROGRAM, 2, cache, ["settle", "true"])
    assert "the best of" in first[0]
    rows = kept.read_learned()
    keys = [(row.collective, row.limits.ranks, row.limits.size, row.limits.in_place) for row in rows]
    assert keys == [("allreduce", (2, 2), (16384, 32768), False)]
    assert rows[0].note.startswith("learned in ")
    shown = CliRunner().invoke(main, ["table", "show", "learned"]).output
    assert str(rows[0].spec) in shown
    assert rows[0].note in shown
    ranks.run(PROGRAM, 2, cache, ["settle", "true"])
    again = kept.read_learned()
    assert [row.note.startswith("learned in ") for row in again] == [True]
    assert ranks.run(PROGRAM, 2, {**cache, "GC3_ADAPT": "0"}, ["settle", "true"]) == ["\n"] * 2
    file = kept.learned_path()
    assert file is not None
    assert file.stat().st_mode & 0o77 == 0
    file.chmod(0o666)
    with pytest.raises(gc3.UserError, match=r"other users can write to .*, which gc3\.init"):
        kept.read_learned()
    file.chmod(0o600)
    file.write_text("{}")
    with pytest.raises(gc3.UserError, match="expected an object with"):
        kept.read_learned()


@pytest.mark.python_only
def test_the_environment_and_rows_say_whether_it_learns(tmp_path: Path) -> None:
    assert "programs" in ranks.run(PROGRAM, 2, {"GC3_ADAPT": "1"}, ["settle"])[0]
    assert ranks.run(PROGRAM, 2, arguments=["settle"]) == ["\n"] * 2
    told = ranks.run(PROGRAM, 2, arguments=["differ"])
    assert told[0].startswith("nothing, because the ranks differ")
    assert told[1] == "\n"
    yes, no, none = (Table.read(table_of(tmp_path, **more)) for more in ({"adapt": True}, {"adapt": False}, {}))
    default = adapting.prepare(None, 0.02, "", none)
    assert not default.specs
    assert adapting.prepare(None, 0.02, "", yes).specs
    assert not adapting.prepare(False, 0.02, "1", yes).specs
    assert adapting.prepare(True, 0.02, "", no).specs
    assert not adapting.prepare("exact", 0.02, "0", yes).specs
    assert no.rows[0].adapt is False


def test_small_messages_are_not_tried_in_place(tmp_path: Path) -> None:
    """Reading them from another rank's memory costs more than copying them."""
    read = [row for row in adapting.candidates(Table.read(table_of(tmp_path))) if row.spec.thresholds]
    sizes = [row.limits.size for row in read if ("read_moved", None) not in row.spec.thresholds]
    assert sizes
    assert all(first >= adapting.FIRST_READ for first, _ in sizes)


@pytest.mark.parametrize(("count", "until"), [(2, r"generated.* us\)"), (3, r"generated.*(timed yet|us)\)")])
def test_a_program_is_generated_for_sizes_in_no_table(tmp_path: Path, count: int, until: str) -> None:
    said = ranks.run(PROGRAM, count, arguments=["generate", table_of(tmp_path), until])
    assert "generated, because no row was made for such " in said[0]
    assert said == said[:1] * count


@pytest.mark.python_only
def test_nothing_is_generated_where_that_is_not_wished(tmp_path: Path) -> None:
    arguments = ["generate", table_of(tmp_path), "after [0-9]{4}"]
    assert "generated" not in ranks.run(PROGRAM, 2, {"GC3_GENERATE": "0"}, arguments)[0]


@pytest.mark.python_only
def test_a_program_that_cannot_be_generated_is_told_with_the_reason(tmp_path: Path) -> None:
    said = ranks.run(PROGRAM, 2, arguments=["reason", table_of(tmp_path)])
    assert "(another rank cannot make it)" in said[0]
    assert " (ValueError('planned'))" in said[1]


@pytest.mark.parametrize("close", [[], ["close"]])
def test_a_job_ends_while_a_program_is_generated(tmp_path: Path, close: list[str]) -> None:
    assert ranks.run(PROGRAM, 2, arguments=["leave", table_of(tmp_path), *close]) == ["left\n"] * 2


def test_all_ranks_generate_the_same_program_which_can_be_kept() -> None:
    base = Spec("ring_allreduce", (("R", "ranks"),))

    class Joined:
        size = 2

        def learned(self) -> list[tuple[object, ...]]:
            return [("allreduce", 3000, False, 0, str(made[0]), 20, 40, 7)]

    learnings = [adapting.Learning(_core.AdaptOptions("1"), {str(base): base}) for _ in range(2)]
    for learning in learnings:
        assert generating.generator(learning.specs)(str(base), 2, 3000, [str(base)]) is not None
    made = [list(learning.specs.values())[-1] for learning in learnings]
    assert made[0] == made[1] != base
    rows = list(learnings[0]._rows(Joined()))  # type: ignore[arg-type]
    assert [(row.spec, row.limits.size) for row in rows] == [(made[0], (2048, 4096))]
    # With no more to try, there is none.
    assert generating.generator({str(base): base})(str(base), 2, 3000, [*map(str, neighbours(base, 2, 3000))]) is None


@pytest.mark.parametrize("algorithm", ["leader_allreduce", "binomial_broadcast", "ring_allgather", "direct_alltoall"])
def test_most_generated_programs_compile_and_the_others_are_refused(algorithm: str) -> None:
    found = [*neighbours(Spec(algorithm, (("R", "ranks"),)), 4, 1 << 20)]
    assert len(set(found)) == len(found) > 3
    good = 0
    for spec in found:
        with contextlib.suppress(gc3.UserError):
            good += spec.compile(4).ranks == 4
    assert good > len(found) // 2


@pytest.mark.parametrize("call", [15, pytest.param(200, marks=pytest.mark.python_only)])
def test_a_rank_that_is_killed_while_programs_are_tried_is_reported(call: int) -> None:
    results = ranks.start(PROGRAM, 3, arguments=["killed", call]).finish()
    assert [status for status, _ in results] == [0, -signal.SIGKILL, 0]
    assert [text for _, text in results] == ["told\n", "", "told\n"]


def test_wishes_that_are_none_are_refused(tmp_path: Path) -> None:
    for adapt, share, wanted in (("yes", 0.02, ""), (True, 2, ""), (True, "all", ""), (None, 0.02, "yes")):
        with pytest.raises(gc3.UserError, match="GC3-"):
            adapting.prepare(adapt, share, wanted, Table.default())
    with pytest.raises(gc3.UserError, match="adapt must be true, false, or null"):
        Table.read(table_of(tmp_path, adapt="maybe"))


def test_an_empty_table_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GC3_CACHE", str(tmp_path / "cache"))
    assert CliRunner().invoke(main, ["table", "show", "learned"]).stderr == (
        "note: gc3.init(adapt=True) has learned nothing on this machine yet\n"
    )


def test_the_command_says_that_a_row_adapts(tmp_path: Path) -> None:
    shown = CliRunner().invoke(main, ["table", "show", str(table_of(tmp_path, adapt=True)), "--ranks", "2"]).output
    assert "any size, adapts" in shown
