"""Writes generated files, or checks that the committed ones are up to date."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

ROOT = Path(__file__).resolve().parent.parent
Files: TypeAlias = Mapping[Path, str]


def stale(files: Files) -> str:
    """Returns how the files on disk differ from `files` as a unified diff; empty if they do not."""
    diff: list[str] = []
    for path, text in files.items():
        old = path.read_text() if path.exists() else ""
        diff += difflib.unified_diff(
            old.splitlines(keepends=True),
            text.splitlines(keepends=True),
            f"{path.name} (committed)",
            f"{path.name} (generated)",
        )
    return "".join(diff)


def update(files: Files, command: str) -> int:
    """Writes `files`, or compares them when the command line says `--check`; returns the exit status."""
    if "--check" not in sys.argv[1:]:
        for path, text in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return 0
    if diff := stale(files):
        print(f"{diff}\nGenerated files are out of date: run `{command}`.")
        return 1
    return 0
