"""What commands print on a terminal: narrow ones, pagers, and a word where a command takes long."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

import pytest

import gc3_command
from ranks import LONGEST

pytestmark = pytest.mark.python_only

CONTROLS = re.compile(r"\x1b\[\??\d*[A-Za-z]|[^\n]*\.\.\.\n?")  # of a terminal, and what it shows for a while
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def on_terminal(*arguments: str, columns: int, rows: int, pager: str) -> str:
    """What `gc3 ARGUMENTS` prints on a terminal of that size, without colours."""
    code, text = printed(*arguments, columns=columns, rows=rows, pager=pager)
    assert code == 0, text
    return COLOURS.sub("", text).replace("\r\n", "\n")


def printed(*arguments: str, columns: int = 100, rows: int = 10_000, pager: str = "cat") -> tuple[int, str]:
    """The exit status of `gc3 ARGUMENTS`, and what it prints on a terminal of that size."""
    ours, theirs = pty.openpty()
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "LESS")}
    environment |= {"COLUMNS": str(columns), "LINES": str(rows), "PAGER": pager, "TERM": "xterm"}
    found: list[bytes] = []

    def read() -> None:
        with suppress(OSError):  # the other end is closed
            while part := os.read(ours, 1 << 16):
                found.append(part)

    reader = threading.Thread(target=read)
    reader.start()
    with tempfile.TemporaryDirectory() as folder:
        process = gc3_command.started(arguments, 3 * [os.ttyname(theirs)], folder, environment)
        assert process.communicate(LONGEST)[0] == ""  # all that it writes is on the terminal
    os.close(theirs)
    reader.join()
    os.close(ours)
    return process.wait(), b"".join(found).decode()


@pytest.mark.parametrize("command", [("list",), ("--help",), ("run", "--help"), ("topo", "list")])
def test_text_fits_a_narrow_terminal(command: tuple[str, ...]) -> None:
    lines = on_terminal(*command, columns=40, rows=10_000, pager="cat").splitlines()
    examples = re.compile(r" +gc3 |.*[=/\[|]|      \w+, ")  # to be copied, and names that cannot be broken
    assert [line for line in lines if len(line) > 42 and not examples.match(line)] == []
    assert len(lines) > 10


def test_long_output_goes_through_the_pager(tmp_path: Path) -> None:
    pager = tmp_path / "pager"
    pager.write_text("#!/bin/sh\nsed 's/^/paged: /'\n")
    pager.chmod(0o755)
    long = on_terminal("errors", columns=100, rows=24, pager=str(pager)).splitlines()
    assert len(long) > 24
    assert all(line.startswith("paged: ") for line in long)
    assert "paged" not in on_terminal("errors", columns=100, rows=10_000, pager=str(pager))
    assert "paged" not in on_terminal("errors", "GC3-L001", columns=100, rows=24, pager=str(pager))


def test_a_run_that_takes_long_says_so_where_there_is_no_terminal(tmp_path: Path) -> None:
    waits = tmp_path / "waits.py"
    waits.write_text(
        "import sys\n"
        "from gc3 import algorithm, chunk\n"
        "@algorithm('alltonext')\n"
        "def waits(R):\n"
        "    sys.stdin.read()\n"  # until the test has read what the command says
        "    chunk(0, 'in', 0).copy(1, 'out', 0)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-m", "gc3", "run", f"{waits}:waits:R=2", "--json"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == f"running {waits}:waits ...\n"
        stdout, stderr = process.communicate(timeout=120)
    assert (process.returncode, stderr) == (0, "")
    assert json.loads(stdout)["check"]["ok"]


@pytest.mark.parametrize("command", ["bench ring_allreduce:R=2 -b 1KiB -n 10000000 --no-check", "demo"])
def test_progress_is_told_where_neither_rows_nor_a_terminal_show_it(command: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "gc3", *command.split(), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        told = process.stderr.readline()
        process.kill()  # without it, bench would take minutes
        process.communicate(timeout=120)
    assert re.fullmatch(r"(timing 1 KiB out of place, 1 of 2|demo: [\w ]+, [1-4] of 4) \.\.\.\n", told)


def test_tables_fit_a_narrow_terminal() -> None:
    line = ("sim", "ring_allreduce", "-t", "ndv4", "-b", "1KiB", "-e", "1KiB", "--baseline", "nccl")
    sim = on_terminal(*line, columns=72, rows=99, pager="")
    shown = CONTROLS.sub("", sim).splitlines()
    assert [line for line in shown if len(line) > 72] == []
    assert "              ring_allreduce:protocol=LL,instances=6; launch 61%;" in shown
    line = ("bench", "ring_allreduce:R=2", "-b", "1KiB", "-e", "1KiB", "-n", "1", "-w", "0")
    bench = CONTROLS.sub("", on_terminal(*line, columns=50, rows=99, pager="")).splitlines()
    assert [line for line in bench if len(line) > 50] == []
    rows = [line.split()[:3] for line in bench if line.strip().startswith("1 KiB")]
    assert rows == [["1", "KiB", "out"], ["1", "KiB", "in"]]
    table = CONTROLS.sub(
        "", on_terminal("table", "show", "--ranks", "2", columns=60, rows=99, pager="cat")
    ).splitlines()
    assert [line for line in table if len(line) > 60 and not line.startswith("    ")] == []
    assert any(line.startswith("      ") for line in table)


@pytest.mark.parametrize("command", [("errors", "GC3-L001"), ("verify", "nothing.gc3")])
def test_no_color(command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    assert COLOURS.search(printed(*command)[1])
    monkeypatch.setenv("NO_COLOR", "1")
    assert not COLOURS.search(printed(*command)[1])


def test_a_prediction_ends_with_the_command_that_deploys_it(tmp_path: Path) -> None:
    """Only on a terminal, and it is a command that runs."""
    line = ["sim", "ring_allreduce", "direct_allreduce", "-t", "ndv4", "-b", "1MiB", "-e", "1MiB"]
    last = on_terminal(*line, columns=200, rows=10_000, pager="cat").splitlines()[-1]
    found = re.fullmatch(r"# next: gc3 (export \w+:\S*R=8 -o) (\w+\.xml), for runtimes of GPUs", last)
    assert found, last
    gc3_command.run(*found[1].split(), str(tmp_path / found[2])).check_returncode()
    piped = gc3_command.run(*line)
    assert piped.returncode == 0
    assert "next:" not in piped.stdout
