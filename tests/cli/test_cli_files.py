"""Files that commands write: if they cannot be written, the error comes before any work is done."""

from __future__ import annotations

import errno
import os
import shlex
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

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


def test_a_check_does_not_touch_what_another_command_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x"
    made: Any = tempfile.TemporaryFile

    def meanwhile(**how: Any) -> Any:
        path.write_text("another's")
        return made(**how)

    monkeypatch.setattr(tempfile, "TemporaryFile", meanwhile)
    files.check_writable(str(path))
    assert path.read_text() == "another's"


def test_readers_see_a_whole_file(tmp_path: Path) -> None:
    path, link = tmp_path / "x", tmp_path / "link"
    files.write_text(str(path), "old")
    path.chmod(0o640)
    link.symlink_to(path)
    with path.open() as reader:
        files.write_text(str(link), "new")
        assert reader.read() == "old"
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("new", 0o640)
    assert sorted(tmp_path.iterdir()) == [link, path]


@pytest.mark.parametrize("number", [errno.EBUSY, errno.EPERM, errno.EXDEV])
def test_a_file_that_cannot_be_replaced_is_overwritten(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that is mounted, or another user's in a folder whose files only their owners may replace."""

    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "replace", refuse)
    path = tmp_path / "x"
    path.write_text("old")
    files.write_text(str(path), "new")
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_one_at_a_time_changes_what_it_has_read(tmp_path: Path) -> None:
    path, lock = tmp_path / "x", tmp_path / "x.lock"
    path.write_text("0")

    def add() -> None:
        for _ in range(20):
            with files.alone(lock, "", "BadArgument", patience_s=1e9):
                files.replace_text(str(path), str(int(path.read_text()) + 1))

    several = [threading.Thread(target=add) for _ in range(4)]
    for one in several:
        one.start()
    for one in several:
        one.join()
    assert path.read_text() == "80"
    assert list(tmp_path.iterdir()) == [path]
    with (
        files.alone(lock, "", "BadArgument"),
        pytest.raises(UserError, match="it is taken"),
        files.alone(lock, "it is taken", "BadArgument"),
    ):
        pass
    with pytest.raises(UserError, match="No such file"), files.alone(tmp_path / "a" / "b", "", "BadArgument"):
        pass


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
