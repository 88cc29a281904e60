"""Ranks of PyTorch, with the backend in Python or in C++."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import ranks

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="no PyTorch: make test-torch")
IN_PYTHON, IN_CPP = "in Python", "in C++"
both = pytest.mark.parametrize("tier", [IN_PYTHON, IN_CPP])
# What is the same in both: `make test` takes the one in C++, `make test-torch` both.
mainly_cpp = pytest.mark.parametrize("tier", [pytest.param(IN_PYTHON, marks=pytest.mark.slow), IN_CPP])
Tier = Callable[[str], dict[str, str]]


def command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs python -m gc3.torch."""
    whole = [sys.executable, "-m", "gc3.torch", *arguments]
    return subprocess.run(whole, capture_output=True, text=True, check=False, env={**os.environ, **environment})


def run(name: str, n: int, tmp_path: Path, tier: dict[str, str], *arguments: str) -> list[tuple[int, str]]:
    """Runs a program on ranks that meet in a file; returns exit status and output of each."""
    # PyTorch 2.14 warns of names that 2.15 has again.
    environment = own_folder(tmp_path) | {"PYTHONWARNINGS": "ignore::FutureWarning"} | tier
    given = [tmp_path / "store", *arguments]
    return ranks.start(ranks.program(name), n, environment, given, ["torch", "gc3.comm"]).finish(240)


def own_folder(tmp_path: Path) -> dict[str, str]:
    """The environment of processes that leave temporary files behind, which parts of PyTorch do."""
    return {"TMPDIR": str(tmp_path)}
