"""Hostile files: each gives one message quickly, and no invisible character reaches the terminal."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import gc3
from gc3 import errors, mscclpp, topologies
from gc3.algorithms import load
from gc3.cli.main import main
from gc3.comm.selection import Table, read_rows
from gc3.sim import preset_file
from gc3.support import files
from gc3.synth import problem
from gc3.topologies import document
from gc3.topologies.importing import import_file
from gc3.tune.record import Record

READERS: dict[str, tuple[Callable[[str], object], str]] = {
    "table": (Table.read, "GC3-R014"),
    "rows": (read_rows, "GC3-R014"),
    "topology": (document.read, "GC3-M005"),
    "algorithm": (load, "GC3-I010"),
    "preset": (preset_file.read, "GC3-S001"),
    "collective": (problem.read, "GC3-M001"),
    "plan": (mscclpp.load, "GC3-I011"),
    "record": (lambda path: Record(path.removesuffix(".points"), fresh=False), "GC3-R014"),
}
CONTENTS = {
    "deep lists": b"[" * 200_000,
    "deep objects": b'{"a":' * 200_000,
    "deep and closed": b"[" * 200_000 + b"]" * 200_000,
    "a byte 0xff": b'{"name": "\xff"}',
    "nothing": b"",
    "a zero": b"\0",
    "no object": b"7",
    "NaN": b'{"name": NaN}',
    "many digits": b'{"name": ' + b"1" * 100_000 + b"}",
    "twice": b'{"name": 1, "name": 2}',
    "half a character": b'{"\\ud800": "\\udfff"}',
    "escapes": b'{"format": "\\u001b[2J", "name": "\\u202e\\u0007"}',
    "raw formatting": '{"na\u202eme": "\u2066\x9b"}'.encode(),
}


def is_seen(text: str) -> bool:
    return all(c == "\n" or unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Zl", "Zp") for c in text)


def refused(read: Callable[[str], object], path: Path) -> errors.UserError:
    with pytest.raises(errors.UserError) as caught:
        read(str(path))
    assert is_seen(str(caught.value))
    return caught.value


def suffix(reader: str) -> str:
    return ".points" if reader == "record" else ".json"


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("reader", READERS)
def test_a_missing_file_is_one_message(reader: str, content: str, tmp_path: Path) -> None:
    read, code = READERS[reader]
    path = tmp_path / f"x{suffix(reader)}"
    path.write_bytes(CONTENTS[content])
    assert refused(read, path).code == code


@pytest.mark.parametrize("reader", READERS)
def test_a_path_that_is_not_a_file_is_one_message(reader: str, tmp_path: Path) -> None:
    read, _ = READERS[reader]
    (tmp_path / f"folder{suffix(reader)}").mkdir()
    (tmp_path / f"endless{suffix(reader)}").symlink_to("/dev/zero")
    (tmp_path / f"loop{suffix(reader)}").symlink_to(tmp_path / f"loop{suffix(reader)}")
    (tmp_path / f"\x1b[2J{suffix(reader)}").mkdir()
    for name in ("folder", "endless", "loop", "\x1b[2J"):
        assert refused(read, tmp_path / f"{name}{suffix(reader)}").code == "GC3-I001"


@pytest.mark.python_only
def test_pipes_are_read_to_their_end_and_given_up_without_a_writer(tmp_path: Path) -> None:
    pipe = tmp_path / "table.json"
    os.mkfifo(pipe)
    assert "a pipe that nobody writes to" in str(refused(Table.read, pipe))

    def write() -> None:
        with pipe.open("wb") as end:
            for part in (b'{"format": "gc3-selection-1",', b' "rows": []}'):
                end.write(part)
                end.flush()

    writer = threading.Thread(target=write)
    writer.start()
    assert read_rows(pipe) == ()
    writer.join()


def test_the_limit_counts_for_pipes_and_files(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(bytes(1 << 20))
    assert len(files.read_bytes(path, 1 << 20)) == 1 << 20
    path.write_bytes(bytes((1 << 20) + 1))
    with pytest.raises(errors.UserError, match="larger than the 1 MiB"):
        files.read_bytes(path, 1 << 20)
    wrong: list[Any] = ["\0", "\ud800", 5]
    for name in wrong:
        with pytest.raises(errors.UserError, match="GC3-I001"):
            files.read_bytes(name, 1 << 20)


HOSTILE = "a\x1b[2J\x07\x9b\u202e\u2066\ufeff\nz"
SAFE = r"a\x1b[2J\x07\x9b\u202e\u2066\ufeff\nz"


def test_names_from_files_and_arguments_are_shown_with_escapes(tmp_path: Path) -> None:
    ring: dict[str, Any] = json.loads(document.dumps(topologies.load("ring", R=3)))
    path = tmp_path / "t.json"
    path.write_text(json.dumps(ring | {"name": HOSTILE, "summary": HOSTILE}))
    assert document.read(str(path)).name == SAFE
    assert errors.shown(HOSTILE) == SAFE
    for ascii_ in (True, False):
        path.write_text(json.dumps({HOSTILE: [HOSTILE]}, ensure_ascii=ascii_), encoding="utf-8")
        assert files.read_json(path, "BadTable") == {SAFE: [SAFE]}
    program = gc3.compile(load("ring_allreduce"), R=2, name=HOSTILE)
    assert program.name == SAFE
    assert is_seen(repr(program))
    for name in ("p.gc3", "p.xml"):
        program.save(tmp_path / name)
        assert gc3.Program.load(tmp_path / name).name == SAFE
    for arguments in (
        ["verify", str(tmp_path / "p.gc3")],
        ["show", str(tmp_path / "p.xml")],
        ["compile", HOSTILE],
        ["run", f"{HOSTILE}.gc3"],
        ["topo", "show", f"{HOSTILE}.json"],
        [HOSTILE],
        ["list", f"--{HOSTILE}"],
    ):
        said = CliRunner().invoke(main, arguments).output
        assert said
        assert is_seen(said), (arguments, said)
    done = subprocess.run([sys.executable, "-m", "gc3", HOSTILE], capture_output=True, text=True, check=False)
    assert is_seen(done.stdout + done.stderr), done.stdout + done.stderr


def test_imported_names_are_shown_with_escapes(tmp_path: Path) -> None:
    path = tmp_path / "\x1b[2Jt.txt"
    path.write_text("\tGPU0\tGPU1\nGPU0\t X \tNV4\nGPU1\tNV4\t X \n")
    imported = import_file(str(path))
    assert is_seen(document.dumps(imported))
    assert imported.name == r"\x1b[2Jt"
