"""Files that commands write: if they cannot be written, the error comes before any work is done."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from gc3.cli.main import main
from gc3.errors import UserError
from gc3.runtime import program
from gc3.support import files

WRITERS = (
    "compile ring_allreduce:R=2 -o {}.gc3",
    "export ring_allreduce:R=2 -o {}.xml",
    "sim ring_allreduce -t ndv4 --picture {}.png",
    "sim ring_allreduce -t ndv4 --picture {}.html",
    "sim ring_allreduce -t ndv4 --csv {}.csv",
    "sim calibrate m.csv --column us -t ndv4 -p ring_allreduce --fit launch -o {}.json",
    "sim calibrate --engine threads -o {}.json",
    "trace ring_allreduce -t ndv4 -o {}.json",
    "trace ring_allreduce:R=2 --engine threads -o {}.json.gz",
    "synth allgather -t dgx1 --steps least -o {}.gc3",
    "synth allgather -t dgx1 --steps least -o {}.json",
    "tune -o {}.json",
    "tune -t ndv4 -o {}.json",
    "topo show ndv4 -o {}.json",
    "topo plot ndv4 -o {}.pdf",
    "topo probe --cpu --measure -o {}.json",
)


@pytest.mark.parametrize("line", WRITERS)
def test_nothing_is_done_for_a_file_that_cannot_be_written(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    CliRunner().invoke(main, [line.partition(" ")[0], "--help"])  # imports the module, which would keep what follows
    for work in ("gc3.cli.target.compiled", "gc3.topologies.load", "gc3.synth.Solvers", "gc3.tune.Tuner"):
        monkeypatch.setattr(work, None)  # the caller fails otherwise
    for place in (tmp_path / "absent" / "x", Path("/dev/null/x")):
        result = CliRunner().invoke(main, shlex.split(line.format(place)))
        assert result.exit_code == 1, result.output
        assert "GC3-I002" in result.stderr
        assert str(place) in result.stderr
        assert result.stdout == ""


@pytest.mark.parametrize("line", ["synth allgather -t dgx1 --pareto 1 -o {}", "table export -o {}"])
def test_the_same_for_a_folder(line: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    for place in (file, file / "inside"):
        result = CliRunner().invoke(main, shlex.split(line.format(place)))
        assert (result.exit_code, result.stdout) == (1, ""), result.output
        assert "GC3-I002" in result.stderr
    assert file.read_text() == "mine"


def test_what_is_there_stays_until_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "x"
    files.check_writable(str(path))
    assert list(tmp_path.iterdir()) == []
    path.write_text("mine")
    files.check_writable(str(path))
    assert path.read_text() == "mine"
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "nothing yet")
    files.check_writable(str(link))
    assert link.is_symlink()
    assert not link.exists()
    files.check_writable("/dev/null")
    with pytest.raises(UserError, match="Is a directory"):
        files.check_writable(str(tmp_path))


def test_packages_for_pictures_are_looked_for_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setattr(program.Program, "load", None)
    for option in ("--picture x.png", "--picture x.html"):
        result = CliRunner().invoke(main, ["sim", "ring_allreduce", "-t", "ndv4", *option.split()])
        assert (result.exit_code, result.stdout) == (1, "")
        assert "pip install matplotlib" in result.stderr


@pytest.mark.parametrize("command", ["verify", "show", "run", "compile"])
def test_a_program_from_a_pipe_is_refused_with_what_to_do(command: str, tmp_path: Path) -> None:
    """As with ``gc3 verify <(cat x.xml)``: it used to be taken for the name of an algorithm."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    result = CliRunner().invoke(main, [command, str(pipe)])
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    assert "is a pipe or a device" in result.stderr
    assert "write it to a file" in result.stderr
