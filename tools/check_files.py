"""Checks rules for all files: their length, no paths of one machine, and no two test files of one name.

Prints one line for each violation and exits with 1 if there is any.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from reporting import report

ROOT = Path(__file__).resolve().parent.parent

FOLDERS = ("bindings", "cpp", "python", "tests", "tools", "examples", "benchmarks", "docs", ".ci")
CODE = {".cc", ".cu", ".cuh", ".def", ".h", ".py", ".sh"}
MAX_LINES = 500

# A home, a mount or a workspace that exists only on one machine, and the folder beside the repository.
MACHINE_PATH = re.compile(r"(?<![\w.])/(?:home|root|Users|work|mnt|workspace)/|\.\./shared\b")
# Tests that read the field's own files beside the repository, and are skipped if those are absent.
MAY_READ_BESIDE = ("cpp/gc3/ir/*_test.cc",)


def files(root: Path) -> Iterator[Path]:
    """Yields the text files of the project."""
    top = [p for p in root.iterdir() if p.is_file() and (p.suffix or p.name == "Makefile")]
    below = [p for folder in FOLDERS for p in (root / folder).rglob("*") if p.is_file()]
    for path in sorted([*top, *below]):
        if "__pycache__" not in path.parts and path.suffix not in {".so", ".pyc"}:
            yield path


def violations(root: Path) -> list[str]:
    """Returns every violation in the tree below `root`."""
    found: list[str] = []
    tests: dict[str, Path] = {}
    for path in files(root):
        name = path.relative_to(root)
        # pytest imports test files by their names alone.
        if (
            name.parts[0] == "tests"
            and name.match("test_*.py")
            and (other := tests.setdefault(path.name, name)) != name
        ):
            found.append(f"{name}:1: {other} has the same name: rename one")
        try:
            lines = path.read_text().splitlines()
        except UnicodeDecodeError:
            continue  # an image or another binary file
        if path.suffix in CODE and len(lines) > MAX_LINES:
            found.append(f"{name}:{MAX_LINES}: {len(lines)} lines: split the file by role")
        if any(name.match(pattern) for pattern in MAY_READ_BESIDE):
            continue
        for number, line in enumerate(lines, start=1):
            if match := MACHINE_PATH.search(line):
                found.append(f"{name}:{number}: {match.group()}: a path of one machine")
    return found


if __name__ == "__main__":
    sys.exit(report(violations(ROOT)))
