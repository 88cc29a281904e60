"""PyTorch on several hosts, which are namespaces of this machine; see tests/hosts.py."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import hosts
from ranks import program
from torch_ranks import needs_torch, own_folder

pytestmark = [
    needs_torch,
    pytest.mark.skipif(hosts.why_not() != "", reason=f"no namespaces here: {hosts.why_not()}"),
]
EXAMPLE = Path(__file__).parents[2] / "examples" / "torch_ddp.py"
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node"]


def output(command: Sequence[str | Path], folder: Path) -> str:
    env = {**os.environ, **own_folder(folder), "GLOO_SOCKET_IFNAME": "eth0"}
    # Apart: what torchrun logs might come within a line of a rank.
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_ddp_under_torchrun_on_two_hosts_has_the_losses_of_one(tmp_path: Path) -> None:
    one = output([*TORCHRUN, "4", "--standalone", EXAMPLE], tmp_path)
    nodes = "--nnodes 2 --node-rank $GROUP_RANK --master-addr node0 --master-port 29600"
    line = f"unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE; exec {' '.join(TORCHRUN)} 2 {nodes} {EXAMPLE}"
    two = output(hosts.command(2, 1, ["sh", "-c", line], "--timeout", "200"), tmp_path)
    losses = [text for text in one.splitlines() if text.startswith("step ")]
    assert len(losses) == 5
    assert [text for text in two.splitlines() if text.startswith("step ")] == losses
    assert "between hosts: " in two


def test_training_on_two_hosts_gives_the_losses_of_gloo(tmp_path: Path) -> None:
    train = [sys.executable, str(program("torch_training")), str(tmp_path / "store"), "ddp", "fsdp"]
    text = output(hosts.command(2, 2, train, "--apart", "--timeout", "200"), tmp_path)
    assert (text.count("ddp agrees\n"), text.count("fsdp agrees\n")) == (4, 4), text
