"""Jobs started by hand, by mpirun, by torchrun, by srun; and invalid variables."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

import forked
from ranks import World, program

EXAMPLE = Path(__file__).parents[2] / "examples" / "processes.py"
JOIN = program("join")
LAUNCHERS = ("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "OMPI_", "PMI", "PMIX_", "SLURM_", "TORCHELASTIC_", "MPI_")


def environment(**more: str) -> dict[str, str]:
    """This process's environment without the variables of launchers."""
    return {k: v for k, v in os.environ.items() if not k.startswith(LAUNCHERS)} | more


def world(variables: Sequence[Mapping[str, str]], file: Path = EXAMPLE) -> list[tuple[int, str]]:
    """Starts a process for each set of variables; returns status and output of each."""
    command = [sys.executable, str(file)]
    processes = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment(**given))
        for given in variables
    ]
    try:
        outputs = [p.communicate(timeout=60)[0] for p in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return [(p.returncode, text) for p, text in zip(processes, outputs, strict=True)]


def launched(command: Sequence[str], **more: str) -> str:
    done = subprocess.run(
        [*command, sys.executable, str(EXAMPLE)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=environment(**more),
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def expect_ranks(text: str, ranks: int) -> None:
    average = f"{(ranks - 1) / 2:g}"
    for rank in range(ranks):
        assert f"rank {rank} of {ranks}: the average is {average}, which is right" in text
    assert text.count("chosen by default.json row") == 1


@pytest.mark.parametrize(
    "ranks", [pytest.param(1, marks=pytest.mark.python_only), 2, pytest.param(5, marks=pytest.mark.python_only)]
)
def test_by_hand(ranks: int) -> None:
    port = str(uuid.uuid4())
    common = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "localhost", "MASTER_PORT": port}
    results = world([{"RANK": str(rank), **common} for rank in range(ranks)])
    assert [status for status, _ in results] == [0] * ranks, results
    expect_ranks("".join(text for _, text in results), ranks)


@pytest.mark.python_only
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize(
    ("launcher", "options"),
    [("mpirun.openmpi", ["--oversubscribe"]), ("mpirun.mpich", [])],
)
def test_by_mpirun(launcher: str, options: list[str], ranks: int) -> None:
    path = shutil.which(launcher)
    if path is None:
        pytest.skip(f"no {launcher} on this machine")
    if "openmpi" in launcher and os.geteuid() == 0:
        options = [*options, "--allow-run-as-root"]
    expect_ranks(launched([path, *options, "-n", str(ranks)]), ranks)


@pytest.mark.python_only
def test_by_torchrun(tmp_path: Path) -> None:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("this Python cannot import torch, which brings torchrun")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3", "--no-python"]
    expect_ranks(launched(torchrun, TMPDIR=str(tmp_path)), 3)  # it leaves a folder of logs


@pytest.mark.python_only
def test_by_srun() -> None:
    job = str(uuid.uuid4().int)
    common = {"SLURM_JOB_ID": job, "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "3", "SLURM_NTASKS": "3"}
    results = world([{"SLURM_PROCID": str(rank), **common} for rank in range(3)])
    assert [status for status, _ in results] == [0] * 3, results
    expect_ranks("".join(text for _, text in results), 3)


@pytest.mark.parametrize(
    ("variables", "code", "said"),
    [
        ({}, "GC3-R007", "neither RANK and WORLD_SIZE nor the variables of mpirun or srun are set"),
        ({"RANK": "0"}, "GC3-R007", "RANK is set and WORLD_SIZE is not"),
        ({"WORLD_SIZE": "2"}, "GC3-R007", "WORLD_SIZE is set and RANK is not"),
        ({"RANK": "", "WORLD_SIZE": "2"}, "GC3-R007", "WORLD_SIZE is set and RANK is not"),
        ({"SLURM_PROCID": "0"}, "GC3-R007", "SLURM_PROCID is set and SLURM_STEP_NUM_TASKS is not"),
        ({"RANK": "one", "WORLD_SIZE": "2"}, "GC3-R002", "RANK='one' in the environment: expected a whole number"),
        ({"RANK": "-1", "WORLD_SIZE": "2"}, "GC3-R002", "RANK='-1' in the environment"),
        ({"RANK": "0", "WORLD_SIZE": "1.5"}, "GC3-R002", "WORLD_SIZE='1.5' in the environment"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, "GC3-R002", "RANK=2 is no rank of WORLD_SIZE=2"),
        ({"RANK": "0", "WORLD_SIZE": "0"}, "GC3-R002", "RANK=0 is no rank of WORLD_SIZE=0"),
        (
            {"RANK": "0", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"},
            "GC3-R002",
            "LOCAL_WORLD_SIZE=2 is set and LOCAL_RANK is not",
        ),
        (
            {"RANK": "0", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "LOCAL_RANK": "0"},
            "GC3-R007",
            "nothing says where rank 0 is: set GC3_RENDEZVOUS=HOST:PORT",
        ),
        (
            {"RANK": "1", "WORLD_SIZE": "2", "MASTER_PORT": "nobody", "GC3_JOIN_TIMEOUT": "0.2"},
            "GC3-R008",
            "rank 0 has not called gc3.init() on this host within 0.2 s",
        ),
        ({"RANK": "0", "WORLD_SIZE": "1", "GC3_JOIN_TIMEOUT": "soon"}, "GC3-R002", "GC3_JOIN_TIMEOUT='soon'"),
    ],
)
def test_wrong_or_missing_variables(variables: dict[str, str], code: str, said: str) -> None:
    ((status, text),) = World([forked.start(JOIN, [], environment(**variables), ["ready"])]).finish()
    assert status == 0, text
    assert text.count("GC3-") == 1
    assert text.startswith(code)
    assert said in text
    assert "hint:" in text


@pytest.mark.parametrize(
    ("who", "said"),
    [
        ([("0", "2"), ("1", "3")], "rank 1 says there are 3 ranks, rank 0 says 2"),
        pytest.param(
            [("0", "3"), ("1", "3"), ("1", "3")],
            "two processes say they are rank 1",
            marks=pytest.mark.python_only,
        ),
    ],
)
def test_ranks_that_contradict_each_other(who: list[tuple[str, str]], said: str) -> None:
    common = {"MASTER_PORT": str(uuid.uuid4()), "GC3_JOIN_TIMEOUT": "10"}
    results = world([{"RANK": rank, "WORLD_SIZE": size, **common} for rank, size in who], JOIN)
    assert [status for status, _ in results] == [0] * len(who), results
    assert all(text.startswith("GC3-R008") and said in text for _, text in results)
