"""Ranks that are killed at random moments of calls of all newer kinds. MIXED_KILLS gives another number of them."""

import os
import subprocess
import sys

import pytest

import ranks

KILLS = int(os.environ.get("MIXED_KILLS", "8"))


@pytest.mark.timeout(60 + 30 * KILLS)
@pytest.mark.python_only
def test_every_other_rank_is_told_which_one_was_killed() -> None:
    program = [sys.executable, str(ranks.program("mixed_faults")), str(KILLS), "7"]
    env = {**os.environ, "PYTHONPATH": os.path.dirname(ranks.__file__)}
    done = subprocess.run(program, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{KILLS} kills, 0 wrong" in done.stdout
