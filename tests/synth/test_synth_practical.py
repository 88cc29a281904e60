"""gc3 synth in practice: many instances, one rank, the length of its output."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gc3 import Program, synth
from gc3.cli.main import main

pytestmark = pytest.mark.python_only


def gc3(line: str) -> Result:
    return CliRunner().invoke(main, line.split())


def test_many_instances_in_one_process(tmp_path: Path) -> None:
    """One start of the solvers serves all; a failing line does not stop the others."""
    rows = tmp_path / "rows.txt"
    rows.write_text(
        "# the tables\n"
        "allgather -t z52 -C 2 -S 4 -R 7\n\n"
        "nonsense -t z52 -S 4\n"
        f"broadcast:root=1,protocol=LL,instances=2 -t dgx1 --steps least -o '{tmp_path}/b c.gc3'\n"
    )
    result = gc3(f"synth {rows}")
    assert result.exit_code == 1
    assert "found C=2 S=4 R=7" in result.output
    assert "GC3-L018" in result.output or "'nonsense' is not one of" in result.output
    program = Program.load(str(tmp_path / "b c.gc3"))
    assert (program.info()["protocol"], program.info()["instances"]) == ("LL", 2)
    for text, why in (("allgather -t\n", "line 1 of"), (f"{rows}\n", "cannot contain best or another file")):
        rows.write_text(text)
        result = gc3(f"synth {rows}")
        assert result.exit_code == 2
        assert why in result.output
    rows.write_text('allgather "')
    assert gc3(f"synth {rows}").exit_code == 2


@pytest.mark.parametrize("mode", ["--pipelined", "--hierarchical", "--steps least", "-S 2", "-S 2 -R 3"])
def test_one_rank_needs_nothing(mode: str) -> None:
    for name in synth.NAMES:
        result = gc3(f"synth {name} -t ring:R=1 {mode} --run")
        assert result.exit_code == 0, result.output
        assert "found C=" in result.output
        assert "S=0 R=0" in result.output


def test_what_is_printed_fits_a_screen() -> None:
    line = "synth allgather -t ndv4 --steps least"
    assert len(gc3(line).output.splitlines()) < 12
    assert len(json.loads(gc3(f"{line} --json").output)["sends"]) == 1


def test_pipelined_programs_fit_the_threadblocks() -> None:
    """Ranks have few peers if the GPU holds few threadblocks, without a round more: data goes over NVLink first."""
    few = gc3("synth alltoall:max_threadblocks=9 -t ndv4:N=2 --unit 25 --pipelined -C 16 --json")
    data = json.loads(few.output)
    assert data["rounds"] == 8
    assert data["program"]["max_threadblocks_per_rank"] <= 9
    many = gc3("synth alltoall:max_threadblocks=9 -t ndv4:N=2 --unit 25 --steps 1 --rounds 8 -C 16")
    assert many.exit_code == 1
    assert "rank 0 needs 15, the target allows 9" in many.output
    assert "--hierarchical needs few peers: gc3 synth alltoall --topology ndv4:N=2" in many.output
