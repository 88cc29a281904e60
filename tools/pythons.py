"""Finds the Python interpreters of this machine: `python tools/pythons.py 3.10` prints the path of one, or nothing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_PROBE = "import ensurepip, sys, sysconfig, venv; print('%d.%d' % sys.version_info[:2], sysconfig.get_path('include'))"


def _candidates(version: str) -> Iterator[str]:
    if on_path := shutil.which(f"python{version}"):
        yield on_path
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    uv = Path(os.environ.get("UV_PYTHON_INSTALL_DIR", Path.home() / ".local" / "share" / "uv" / "python"))
    for folder in (pyenv, uv):
        yield from sorted(map(str, folder.glob(f"*{version}.*/bin/python{version}")), reverse=True)


def find(version: str) -> str | None:
    """Returns an interpreter of that version ("3.10") with which environments and modules can be made.

    Each is run and looked at: what PATH names may be a stand-in that only says the version is switched off, or have no
    headers.
    """
    for path in _candidates(version):
        done = subprocess.run([path, "-c", _PROBE], capture_output=True, text=True, check=False)
        found, _, include = done.stdout.strip().partition(" ")
        if done.returncode == 0 and found == version and Path(include, "Python.h").is_file():
            return path
    return None


def oldest() -> str:
    """Returns the oldest version that pyproject.toml promises."""
    text = (ROOT / "pyproject.toml").read_text()
    found = re.search(r'^requires-python = ">=(\d+\.\d+)"$', text, re.MULTILINE)
    if found is None:
        raise ValueError("pyproject.toml has no line requires-python")
    return found[1]


def newest() -> str:
    """Returns the newest version that is on this machine."""
    versions = [f"3.{minor}" for minor in range(25, 9, -1)]
    return next(version for version in versions if find(version))


if __name__ == "__main__":
    print(find({"oldest": oldest, "newest": newest}.get(sys.argv[1], lambda: sys.argv[1])()) or "")
