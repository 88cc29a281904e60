"""Ctrl-C ends long work of the core, and what no target can hold is refused before it is begun."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import gc3
from gc3 import errors
from gc3.algorithms import load

READY = "ready"


def interrupted(code: str, tmp_path: Path) -> float:
    """Returns how long it took a process that runs `code` to end after Ctrl-C."""
    script = f"""
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from gc3 import _core
from gc3.algorithms import load
from gc3.lang import compile, dump
from gc3.program import verify
{code}
"""
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().strip() == READY
            time.sleep(1)  # the work has begun
            assert process.poll() is None
            begin = time.monotonic()
            process.send_signal(signal.SIGINT)
            _, text = process.communicate(timeout=60)
            assert "KeyboardInterrupt" in text
            return time.monotonic() - begin
        finally:
            process.kill()


def test_compiling_ends_at_ctrl_c(tmp_path: Path) -> None:
    interrupted(f"print('{READY}', flush=True); compile(load('ring_allreduce'), R=4, instances=60000)", tmp_path)


def test_reading_a_pipe_ends_at_ctrl_c(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    code = "import os; end = os.open('pipe', os.O_RDWR)"
    interrupted(f"{code}; print('{READY}', flush=True); _core.load_file('pipe')", tmp_path)


@pytest.mark.parametrize(
    ("name", "settings", "text"),
    [
        ("ring_allreduce", {"R": 4, "instances": 1_000_000}, "1000000 instances"),
        ("ring_allreduce", {"R": 64, "instances": 60_000}, "parallel parts"),
        ("two_step_alltoall", {"N": 512, "G": 8}, "33554432 chunks in all inputs and outputs"),
    ],
)
def test_what_no_target_can_hold_is_refused_before_it_is_begun(name: str, settings: dict[str, Any], text: str) -> None:
    with pytest.raises(errors.UserError, match=text) as caught:
        gc3.compile(load(name), **settings)
    assert caught.value.code == "GC3-C002"
