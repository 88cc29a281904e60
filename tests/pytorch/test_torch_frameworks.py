"""What PyTorch and others build on process groups. `make test-torch` runs these tests."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import ranks
from torch_ranks import Tier, both, needs_torch, own_folder, run

CHECKS = "bf16_hook power_sgd static_graph unused join no_sync fsdp tensor_parallel sequence_parallel redistribution"
CHECKS += " pipeline checkpoint compiled"


@needs_torch
@both
@pytest.mark.slow
@pytest.mark.parametrize("n", [2, 4])
def test_frameworks_do_what_they_do_on_gloo(n: int, tmp_path: Path, tiers: Tier, tier: str) -> None:
    for status, text in run("torch_frameworks", n, tmp_path, tiers(tier)):
        agreed = [line.split()[0] for line in text.splitlines() if line.endswith(" agrees")]
        assert (status, agreed) == (0, CHECKS.split()), text


@needs_torch
@both
@pytest.mark.slow
def test_torchrun_starts_again_after_a_rank_was_killed(tmp_path: Path, tiers: Tier, tier: str) -> None:
    program = ranks.program("torch_elastic")
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3"]
    done = subprocess.run(
        [*start, "--max-restarts", "1", program, tmp_path],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
        env={**os.environ, **own_folder(tmp_path), **tiers(tier)},
    )
    assert done.returncode == 0, done.stderr
    ended = sorted(line for line in done.stdout.splitlines() if "has ended" in line)
    assert ended == [f"rank {rank} began at step 3 in generation 1 and has ended" for rank in range(3)]


@needs_torch
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("accelerate", "accelerate"),
        ("lightning", "lightning"),
        ("trainer", "transformers"),
        ("deepspeed", "deepspeed"),  # builds an extension at its first start, in minutes
        ("ray", "ray"),
    ],
)
def test_frameworks_with_loops_of_their_own(name: str, package: str, tmp_path: Path) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"no {package}")
    example = Path(__file__).parents[2] / "examples" / f"torch_{name}.py"
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"] if name != "ray" else []
    environment = {**os.environ, **own_folder(tmp_path), "RAY_USAGE_STATS_ENABLED": "0"}
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp") as short:  # for the names of its sockets
        done = subprocess.run(
            [sys.executable, *launcher, example],
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
            env={**environment, "RAY_TMPDIR": short},
        )
    assert done.returncode == 0, done.stderr
    # Ray shows the lines of its workers on standard error, with their numbers before them.
    assert re.search(r"loss 0\.\d+ on 2 ranks of gc3$", done.stdout + done.stderr, re.MULTILINE), done.stdout
