"""What commands print on a terminal: narrow ones, pagers, and a word where a command takes long."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from gc3.cli import output

COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def on_terminal(*arguments: str, columns: int, rows: int, pager: str) -> str:
    """What `gc3 ARGUMENTS` prints on a terminal of that size, without colours."""
    ours, theirs = pty.openpty()
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "LESS")}
    environment |= {"COLUMNS": str(columns), "LINES": str(rows), "PAGER": pager, "TERM": "xterm"}
    with subprocess.Popen(
        [sys.executable, "-m", "gc3", *arguments], stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    ) as process:
        os.close(theirs)
        text = b""
        while True:
            try:
                part = os.read(ours, 1 << 16)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            text += part
        os.close(ours)
    assert process.returncode == 0, text
    return COLOURS.sub("", text.decode()).replace("\r\n", "\n")


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


def test_a_long_step_says_what_it_does_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    told = threading.Event()

    def echo(text: str, *, err: bool) -> None:
        assert err
        said.append(text)
        told.set()

    monkeypatch.setattr(output.click, "echo", echo)
    monkeypatch.setattr(output, "_STEP", 0.0)
    monkeypatch.setattr(output, "_PATIENCE", 0.0)
    with output.working("proving"):
        assert told.wait(60)
    monkeypatch.setattr(output, "_STEP", 3600.0)
    with output.working("running"):
        pass
    assert said == ["proving ..."]
