"""The lines of the user's code, from the call of chunk() to messages about a step."""

from __future__ import annotations

import copy
import inspect
from pathlib import Path

import pytest
from click.testing import CliRunner

import gc3
from gc3.algorithms import load
from gc3.cli.main import main
from gc3.lang.source import SourceProgram
from gc3.runtime.schedule import Line
from gc3.sim import by_line
from gc3.sim.predict import simulate

pytestmark = pytest.mark.python_only

_HERE = Path(__file__).name


def _pass_on(source: int, target: int) -> None:
    gc3.chunk(source, "in", 0).copy(target, "out", 0)  # inside the helper


def _line(text: str) -> int:
    rows = Path(__file__).read_text().splitlines()
    return next(n for n, row in enumerate(rows, 1) if row.endswith(f"# {text}"))


@gc3.algorithm("alltonext")
def shift(R: int) -> None:
    """Every rank sends to the next."""
    for rank in range(R - 1):
        if rank == 0:
            gc3.chunk(0, "in", 0).copy(1, "out", 0)  # directly
        else:
            _pass_on(rank, rank + 1)  # through a helper


def _lines(program: gc3.Program) -> set[str]:
    return {str(step.line) for rank in range(program.ranks) for tb in program.threadblocks(rank) for step in tb.steps}


def _expected() -> set[str]:
    helper = f"{_HERE}:{_line('inside the helper')}, called from {_HERE}:{_line('through a helper')}"
    return {f"{_HERE}:{_line('directly')}", helper}


@pytest.mark.parametrize("instances", [1, 3])
@pytest.mark.parametrize("protocol", ["Simple", "LL128"])
def test_every_instruction_knows_its_line_and_the_callers(instances: int, protocol: str) -> None:
    program = gc3.compile(shift, R=4, instances=instances, protocol=protocol)
    assert _lines(program) == _expected()
    assert program.core.source_lines.count((__file__, _line("directly"), None)) == 1


def test_lines_outlive_files_and_copies_but_not_other_forms(tmp_path: Path) -> None:
    program = gc3.compile(shift, R=4)
    program.save(tmp_path / "p.gc3")
    assert _lines(gc3.Program.load(tmp_path / "p.gc3")) == _expected()
    assert _lines(copy.deepcopy(program)) == _expected()
    program = gc3.compile(load("ring_allreduce"), R=4)
    for form in ("p.xml", "p.txt"):
        program.save(tmp_path / form)
        bare = gc3.Program.load(tmp_path / form)
        assert _lines(bare) == {"None"}
        assert bare.core.source_lines == []
        assert bare.core.line_of == b""
        if form == "p.txt":
            assert bare == program
            assert hash(bare) == hash(program)
            assert bare.core.to_bytes() == program.core.to_bytes(source=False)


def test_fused_and_adapted_instructions_have_lines() -> None:
    for in_place in (True, False):
        program = gc3.compile(load("ring_allreduce"), R=4, in_place=in_place)
        steps = [s for r in range(4) for tb in program.threadblocks(r) for s in tb.steps]
        assert any(s.sends and s.receives for s in steps)
        assert all(s.line is not None and s.line.file.endswith("ring_allreduce.py") for s in steps)


def _halve(ranks: range) -> None:
    if len(ranks) == 1:
        return
    middle = len(ranks) // 2
    gc3.chunk(ranks[0], "out" if ranks[0] else "in", 0).copy(ranks[middle], "out", 0)
    _halve(ranks[:middle])
    _halve(ranks[middle:])


def test_recursion_is_bounded() -> None:
    program = SourceProgram("halving", "broadcast", ranks=4096)
    with program:
        _halve(range(4096))
        gc3.chunk(0, "in", 0).copy(0, "out", 0)
    compiled = gc3.compile(program)
    assert len(compiled.core.source_lines) < 2000
    depths = {str(step.line).count("called from") for tb in compiled.threadblocks(4095) for step in tb.steps}
    assert max(depths) <= 8


def test_lines_begin_at_the_with_block() -> None:
    def write() -> None:
        _pass_on(0, 1)

    program = SourceProgram("two", "alltonext", ranks=2)
    with program:
        write()
    (step,) = gc3.compile(program).threadblocks(0)[0].steps
    names: list[str] = []
    line: Line | None = step.line
    while line is not None:
        names.append(Path(line.file).name)
        line = line.caller
    assert names == [_HERE] * 3  # the helper, write(), and this test, but nothing of pytest


def test_a_mistake_in_a_helper_shows_the_callers() -> None:
    with pytest.raises(gc3.UserError) as caught:
        gc3.compile(_wrong, R=3)
    (found,) = caught.value.diagnostics
    assert found.where.line == _line("no such rank")
    assert [(note.text, note.where.line) for note in found.notes if note.text == "called here"] == [
        ("called here", _line("calls the wrong one"))
    ]


def _misuse(rank: int) -> None:
    gc3.chunk(rank, "in", 0)  # no such rank


@gc3.algorithm("alltonext")
def _wrong(R: int) -> None:
    _misuse(R)  # calls the wrong one


def test_simulated_steps_name_the_line() -> None:
    program = gc3.compile(shift, R=2)
    why = simulate(program, "ndv4", 1 << 20, explain=True).explanation
    assert why is not None
    assert any(f", {_HERE}:{_line('directly')})" in stretch.where for stretch in why.path)


def test_shares_add_up_and_callers_include_what_they_call() -> None:
    program = gc3.compile(shift, R=4)
    why = simulate(program, "ndv4", 1 << 20, explain=True).explanation
    assert why is not None
    found = by_line.shares(program.core, why)
    direct = found[__file__, _line("directly")]
    helper, caller = found[__file__, _line("inside the helper")], found[__file__, _line("through a helper")]
    assert (helper.steps, direct.steps) == (4, 2)
    assert caller == helper
    assert direct.path_s + helper.path_s == pytest.approx(why.time_s - why.causes["launch"])
    assert direct.busy_s + helper.busy_s == pytest.approx(why.work_s)


def test_show_source(tmp_path: Path) -> None:
    code = inspect.getsource(shift.function)
    (tmp_path / "mine.py").write_text(f"import gc3\n\n{inspect.getsource(_pass_on)}\n\n{code}")
    command = ["show", f"{tmp_path}/mine.py:shift", "--source", "-t", "ndv4", "--size", "64KiB"]
    text = CliRunner().invoke(main, command).output
    assert "64 KiB on ndv4" in text
    assert "% is the launch" in text
    rows = [
        row for row in text.splitlines() if row.endswith(("# directly", "# through a helper", "# inside the helper"))
    ]
    assert len(rows) == 3
    assert all(row.lstrip()[0].isdigit() and "%" in row for row in rows)
