"""The tutorial's commands print what the page shows; times of this machine may differ."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.python_only

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
MEASURED = re.compile(r"\d+\.\d+ (?=ms|GB/s)")


def test_the_commands_print_what_the_page_shows(tmp_path: Path) -> None:
    tools = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}
    environment.pop("GC3_CACHE", None)
    commands = 0
    for language, title, text in BLOCK.findall(PAGE.read_text()):
        if language == "python":
            (tmp_path / title).write_text(text)
        if language != "console":
            continue
        for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
            command, _, shown = part.partition("\n")
            done = subprocess.run(
                shlex.split(command),
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
            told = [line for line in done.stderr.splitlines(keepends=True) if not line.startswith("running ")]
            printed = done.stdout + "".join(told)  # without what a run says that takes long
            assert MEASURED.sub("# ", printed).rstrip() == MEASURED.sub("# ", shown).rstrip(), command
            assert done.returncode == shown.startswith("error"), command
            commands += 1
    assert commands > 5
