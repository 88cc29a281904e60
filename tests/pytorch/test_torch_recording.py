"""Steps of PyTorch that are recorded, and simulated."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from gc3.sim.read import chakra
from gc3.sim.read.chakra import COLLECTIVE, RECEIVE, SEND
from torch_ranks import IN_CPP, IN_PYTHON, Tier, needs_torch, own_folder, run

ROOT = Path(__file__).resolve().parents[2]
PARAMETERS = 16 * 64 + 64 + 64 * 16 + 16


DEFAULT = ((IN_PYTHON, "ddp"), (IN_CPP, "fsdp"))
STEPS = [
    pytest.param(backend, kind, marks=[] if (backend, kind) in DEFAULT else pytest.mark.slow)
    for backend in (IN_PYTHON, IN_CPP, "gloo")
    for kind in ("ddp", "fsdp")
]


@needs_torch
@pytest.mark.parametrize(("backend", "kind"), STEPS)
def test_a_step_is_recorded(backend: str, kind: str, tmp_path: Path, tiers: Tier) -> None:
    gloo = backend == "gloo"
    ran = run("torch_recording", 2, tmp_path, {} if gloo else tiers(backend), str(tmp_path / "t"),
              "gloo" if gloo else "gc3", kind)  # fmt: skip
    assert [status for status, _ in ran] == [0, 0], ran
    assert "gc3.torch.record needs a job" in ran[0][1]
    for _, text in ran:
        assert "rank 1: the profile has" in text
        assert "of steps that differ" in text
    traces = chakra.read_all(str(tmp_path / "t"), 2)
    pair = next(name for name, ranks in chakra.read_groups(str(tmp_path / "t.groups.json")).items() if len(ranks) == 2)
    for rank, trace in enumerate(traces):
        calls = [node for node in trace if node.kind == COLLECTIVE]
        count = Counter((node.collective, node.size) for node in calls if not node.group)
        for name, size in (("allreduce", 32), ("allreduce", 4), ("allgather", 32), ("alltoall", 64), ("broadcast", 32),
                           ("reducescatter", 32), ("reduce", 32), ("gather", 32), ("scatter", 64)):  # fmt: skip
            assert count[name, size] >= 1, (name, size)
        if kind == "ddp":
            sizes = [node.size for node in calls if node.collective == "allreduce" and node.size > 32]
            assert sum(sizes) == 4 * PARAMETERS
        else:
            sizes = [node.size for node in calls if node.collective == "reducescatter" and node.size > 32]
            assert sum(sizes) == 4 * PARAMETERS
        assert sorted({node.group for node in calls if node.group})
        assert Counter(len(node.group) > 0 and node.group == pair for node in calls)[True] == 1
        (message,) = [node for node in trace if node.kind in (SEND, RECEIVE)]
        assert (message.kind, message.size, message.peer) == ((SEND, RECEIVE)[rank], 32, 1 - rank)
        # Every node but the first waits for another, and no call that was waited for at once is left without a waiter.
        waited = {number for node in trace for number in node.after}
        assert all(node.after for node in trace[2:])
        assert {node.number for node in calls[:-1]} <= waited
    uses = [word for name in ("allreduce=ring", "allgather=ring", "reducescatter=ring", "alltoall=direct",
                              "broadcast=flat", "reduce=flat", "gather=flat", "scatter=flat")
            for word in ("--use", f"{name}_{name.partition('=')[0]}")]  # fmt: skip
    command = [
        sys.executable,
        "-m",
        "gc3",
        "sim",
        "step",
        str(tmp_path / "t"),
        "-t",
        "ethernet_hosts:N=2,G=1",
        "--json",
    ]
    done = subprocess.run([*command, *uses], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert data["time_us"] >= max(rank["compute_us"] for rank in data["ranks"]) > 0
    assert {row["ranks"] for row in data["collectives"]} == {1, 2}


@needs_torch
@pytest.mark.slow
def test_the_example_records_its_step(tmp_path: Path) -> None:
    example = ROOT / "examples" / "torch_record.py"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", example,
               tmp_path / "t", "--layers", "1", "--steps", "1"]  # fmt: skip
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=200, env={**os.environ, **own_folder(tmp_path)}
    )
    assert done.returncode == 0, done.stderr
    assert "a step takes" in done.stdout
    sizes = [[node.size for node in trace if node.kind == COLLECTIVE]
             for trace in chakra.read_all(str(tmp_path / "t"), 2)]  # fmt: skip
    assert sizes[0] == sizes[1]
    assert len(sizes[0]) >= 2
