"""The C++ interface, cpp/gc3/gc3.h, in a program: N processes of the example, and the folder of their programs."""

from __future__ import annotations

import json
import os
import subprocess
import uuid
from pathlib import Path

import pytest
from click.testing import CliRunner

import gc3
from gc3.algorithms import load
from gc3.cli.main import main
from gc3.support.words import counted

pytestmark = pytest.mark.python_only

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "build" / "release" / "examples" / "cpp" / "gc3_collectives"

needs_program = pytest.mark.skipif(not PROGRAM.exists(), reason="the C++ example is built by `make cpp-tests`")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("programs")
    run = CliRunner().invoke(main, ["table", "export", "--ranks", "1,2,3,4", "-o", str(made), "--json"])
    assert run.exit_code == 0, run.output
    assert json.loads(run.output)["programs"] == len(list(made.glob("*.gc3")))
    return made


def start(folder: Path | str, ranks: int, job: str, started: int | None = None) -> list[subprocess.Popen[str]]:
    return [
        subprocess.Popen(
            [PROGRAM, str(folder)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "RANK": str(rank), "WORLD_SIZE": str(ranks), "MASTER_PORT": job},
        )
        for rank in range(ranks if started is None else started)
    ]


def run(folder: Path | str, ranks: int) -> list[tuple[int, str]]:
    processes = start(folder, ranks, str(uuid.uuid4()))
    outputs = [p.communicate(timeout=60)[0] for p in processes]
    return [(p.returncode, text) for p, text in zip(processes, outputs, strict=True)]


@needs_program
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_every_collective_from_cpp(folder: Path, ranks: int) -> None:
    found = run(folder, ranks)
    assert [(status, text.splitlines()[-1]) for status, text in found] == [
        (0, f"rank {r} of {ranks}: 0 of 14 results are wrong") for r in range(ranks)
    ]
    why = found[0][1]
    assert why.startswith(f"allreduce of 4000 B on {counted(ranks, 'rank')}, out of place: {folder}/")
    assert f"  chosen by {folder}/index line " in why


@needs_program
def test_a_missing_or_invalid_folder_is_refused(tmp_path: Path) -> None:
    ((status, text),) = run(tmp_path / "nowhere", 1)
    assert (status, text.split()[0]) == (1, "GC3-I001")
    for content, where in (("what\n", "does not begin with"), ("gc3-programs-1\nallreduce 2 0\n", "line 2")):
        (tmp_path / "index").write_text(content)
        ((status, text),) = run(tmp_path, 1)
        assert (status, text.split()[0]) == (1, "GC3-R014")
        assert where in text


@needs_program
def test_calls_that_no_program_serves(tmp_path: Path) -> None:
    program = gc3.compile(load("ring_allreduce"), R=1, in_place=False)
    program.save(tmp_path / "ring.gc3")
    (tmp_path / "index").write_text("gc3-programs-1\nallreduce 1 0 - 0 0 0 0 ring.gc3\n")
    ((status, text),) = run(tmp_path, 1)
    assert status == 1
    assert "all_gather: GC3-R014 bad selection table: no row serves allgather of 4000 B on 1 rank, out of place" in text


@needs_program
def test_ranks_that_do_not_join(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GC3_JOIN_TIMEOUT", "0.2")
    (process,) = start(folder, 2, str(uuid.uuid4()), started=1)
    text, _ = process.communicate(timeout=60)
    assert (process.returncode, text.split()[0]) == (1, "GC3-R008")


def test_custom_rows_come_first(tmp_path: Path) -> None:
    row = {
        "collective": "alltoall",
        "ranks": [2, 2],
        "size": [100, 1000],
        "in_place": False,
        "program": {"algorithm": "pairwise_alltoall", "instances": 2, "protocol": "LL", "slots": 4, "slot_bytes": 4096},
    }
    table = tmp_path / "mine.json"
    table.write_text(json.dumps({"format": "gc3-selection-1", "rows": [row]}))
    made = tmp_path / "programs"
    done = CliRunner().invoke(main, ["table", "export", str(table), "--ranks", "2,3", "-o", str(made)])
    assert done.exit_code == 0, done.output
    lines = (made / "index").read_text().splitlines()
    assert lines[:2] == ["gc3-programs-1", "alltoall 2 100 1000 0 0 4 4096 pairwise_alltoall-2ranks-LL-x2.gc3"]
    named = {word for line in lines[1:] for word in line.split() if word.endswith(".gc3")}
    assert named == {path.name for path in made.glob("*.gc3")}
    assert sum(line.startswith("broadcast 3") for line in lines) > 3


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = CliRunner().invoke(main, ["table", "export", "--ranks", "1", "-o", str(tmp_path / "file")])
    assert done.exit_code == 1
    assert "GC3-I002" in done.output
