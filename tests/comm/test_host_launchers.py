"""Jobs of several hosts, started by torchrun, by mpirun of Open MPI and MPICH, and with the variables of srun."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import hosts
import ranks
from ranks import program

pytestmark = [
    pytest.mark.python_only,
    pytest.mark.waits,
    pytest.mark.skipif(hosts.why_not() != "", reason=f"no namespaces here: {hosts.why_not()}"),
]

PEERS = Path(__file__).parents[2] / "build" / "peers"  # of `make bench-vs`


def launcher(name: str, peer: str, command: str) -> str:
    """The path of a launcher, of the system or of the libraries that gc3 is compared with."""
    path = shutil.which(name) or shutil.which(str(PEERS / peer / "bin" / command))
    if path is None:
        pytest.skip(f"no {name} on this machine")
    return path


def agent(folder: Path) -> str:
    """A script that runs a command on a host, as ssh does."""
    script = folder / "agent"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{hosts.__file__}" on "$@"\n')
    script.chmod(0o755)
    return str(script)


def ranks_that_tell(folder: Path) -> list[str]:
    """The program of the ranks, each of which leaves a file of its number in a folder."""
    told = folder / "told"
    told.mkdir()
    return [sys.executable, str(program("on_hosts")), "2", str(told)]


def expect_four(command: Sequence[str], folder: Path) -> None:
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout
    assert sorted(file.name for file in (folder / "told").iterdir()) == ["0", "1", "2", "3"], done.stdout


def test_mpirun_of_open_mpi(tmp_path: Path) -> None:
    mpirun = launcher("mpirun.openmpi", "openmpi", "mpirun")
    version = subprocess.run([mpirun, "--version"], capture_output=True, text=True, check=True).stdout
    if " 4." in version:
        options = ["plm_rsh_agent", agent(tmp_path)], ["plm_rsh_no_tree_spawn", "1"], ["oob_tcp_if_include", "eth0"]
        words = [word for option in options for word in ("--mca", *option)] + [
            "--mca",
            "orte_leave_session_attached",
            "1",
        ]
    else:
        options = ["plm_ssh_agent", agent(tmp_path)], ["plm_ssh_no_tree_spawn", "1"], ["prte_if_include", "eth0"]
        words = [word for option in options for word in ("--prtemca", *option)]
    words += ["--host", "node0:2,node1:2", "--map-by", "ppr:2:node", "-n", "4"]
    root = ["--allow-run-as-root"]  # within the namespaces every user is
    line = [mpirun, *root, *words, *ranks_that_tell(tmp_path)]
    expect_four(hosts.command(2, 1, line, "--once", "--timeout", "100"), tmp_path)


def test_hydra_of_mpich(tmp_path: Path) -> None:
    hydra = launcher("mpiexec.hydra", "mpich", "mpiexec.hydra")
    words = ["-launcher", "rsh", "-launcher-exec", agent(tmp_path), "-iface", "eth0", "-hosts", "node0,node1"]
    line = [hydra, *words, "-ppn", "2", "-n", "4", *ranks_that_tell(tmp_path)]
    expect_four(hosts.command(2, 1, line, "--once", "--timeout", "100"), tmp_path)


def test_torchrun(tmp_path: Path) -> None:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("this Python cannot import torch, which brings torchrun")
    # An agent on each host, which starts two ranks.
    words = f'"{sys.executable}" -m torch.distributed.run --nnodes 2 --nproc-per-node 2 --node-rank $GROUP_RANK'
    words += " --master-addr $MASTER_ADDR --master-port 29600 --no-python "
    words += " ".join(ranks_that_tell(tmp_path))
    clean = "unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_PORT; "
    line = ["sh", "-c", f"export TMPDIR='{tmp_path}'; {clean} exec {words}"]
    expect_four(hosts.command(2, 1, line, "--timeout", "100"), tmp_path)


@pytest.mark.parametrize("nodes", ["node[0-1]", pytest.param("node0,node1", marks=pytest.mark.nightly)])
def test_variables_of_srun(nodes: str, tmp_path: Path) -> None:
    # tests/hosts.py starts two ranks on each host, as srun does; the variables of others go.
    slurm = {
        "SLURM_JOB_ID": "4711",
        "SLURM_STEP_ID": "0",
        "SLURM_STEP_NUM_TASKS": "4",
        "SLURM_NTASKS": "4",
        "SLURM_TASKS_PER_NODE": "'2(x2)'",
        "SLURM_STEP_NODELIST": f"'{nodes}'",
        "SLURM_NODEID": "$GROUP_RANK",
        "SLURM_PROCID": "$RANK",
        "SLURM_LOCALID": "$LOCAL_RANK",
    }
    said = " ".join(f"{name}={value}" for name, value in slurm.items())
    clean = "unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT GROUP_RANK"
    line = f"export {said}; {clean}; exec {' '.join(ranks_that_tell(tmp_path))}"
    expect_four(hosts.command(2, 2, ["sh", "-c", line], "--timeout", "100"), tmp_path)


def test_ranks_that_no_other_joins_say_so(tmp_path: Path) -> None:
    """A rank that has joined over PMI-1 waits for the others at the launcher's barrier, but not for ever."""
    hydra = launcher("mpiexec.hydra", "mpich", "mpiexec.hydra")
    lone = tmp_path / "lone"
    other = f'while [ ! -e "{tmp_path}/ended" ]; do sleep 0.1; done'
    joins = f'"{sys.executable}" "{program("join")}"; touch "{tmp_path}/ended"'
    lone.write_text(f"#!/bin/sh\nif [ $PMI_RANK = 1 ]; then {other}; else {joins}; fi\n")
    lone.chmod(0o755)
    words = ["-launcher", "rsh", "-launcher-exec", agent(tmp_path), "-iface", "eth0", "-hosts", "node0,node1"]
    done = subprocess.run(
        hosts.command(2, 1, [hydra, *words, "-ppn", "1", "-n", "2", str(lone)], "--once"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=ranks.LONGEST,
        check=False,
        env=os.environ | {"GC3_JOIN_TIMEOUT": "2"},
    )
    assert "some ranks have not called gc3.init() in time, or the launcher does not answer over PMI-1" in done.stdout
