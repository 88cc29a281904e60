"""Programs that compute beside call after call and calls by hand: prints comparisons.

python benchmarks/fusion.py [--only 'fused_mlp*'] [--rounds 6]

Runs examples/fused_*.py, one job each: all ways do the same work in the same processes, in turn, with one thread each
for products of matrices. Hosts are those of tests/hosts.py, whose links have a rate. Where computation and messages
alone take A and M, and messages use the processor for c of M, no overlap can take less than max(A + c, M), and with n
tiles the first or last of them is not overlapped: the bound is max(A + c, M) + min(A, M) / n. All of it is measured in
the same run.
"""

from __future__ import annotations

import fnmatch
import json
import os
import secrets
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import click
from peers import record
from peers.libraries import ENVIRONMENTS

from gc3.cli.main import Script

EXAMPLES = record.ROOT / "examples"
TEST_BED = record.ROOT / "tests" / "hosts.py"
# Where the ranks are, the rate of the links, what the example is told, and in how many parts its work overlaps.
CASES: dict[str, tuple[str, str, str, int]] = {
    **{
        f"{name}, 2 hosts, {rate}": ("2x1", rate, "", tiles)
        for rate in ("1gbit", "2gbit", "5gbit")
        for name, tiles in (("fused_mlp", 8), ("fused_linear", 8), ("fused_moe", 8), ("fused_fsdp", 8))
    },
    "fused_moe, 2 hosts, 1gbit, skew 1.2": ("2x1", "1gbit", "--skew 12", 8),
    **{
        f"fused_norm, {ranks} ranks, {size} KiB": (str(ranks), "", f"--rows {size // 16 // ranks}", 0)
        for ranks in (2, 4)
        for size in (64, 256, 1024, 16384)
    },
}


def compared(python: str, case: str, rounds: int) -> dict[str, Any]:
    """Runs a comparison, and returns its record."""
    place, rate, words, tiles = CASES[case]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "GC3_SECRET": secrets.token_hex(16)}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        line = [python, str(EXAMPLES / f"{case.partition(',')[0]}.py"), "--rounds", str(rounds), "--json", str(out)]
        line += words.split() + ["--vs"] * (subprocess.run([python, "-c", "import torch"], check=False).returncode == 0)
        if "x" in place:
            hosts, each = place.split("x")
            bed = [sys.executable, str(TEST_BED), "-n", hosts, "-k", each, "--rate", rate, "--timeout", "300"]
            line = [*bed, "--", *line]
        else:
            line += ["--ranks", place]
        load = os.getloadavg()[0]
        done = subprocess.run(line, env=env, stdout=subprocess.DEVNULL, check=False)
        if done.returncode != 0:
            raise click.ClickException(f"{case}: its errors are above")
        found = json.loads(out.read_text())
    return {"case": case, "version": record.version(), "load": load, **found, **judged(found["rows"], tiles)}


def judged(rows: list[dict[str, Any]], tiles: int) -> dict[str, float]:
    """What the model says, and what was reached; link idle: the part of the time in which the messages could rest."""
    ms = {row["library"]: row["ms"] for row in rows}
    alone, messages, once = ms["alone"], ms["messages"], ms["gc3 one program"]
    used = next(row["processor_ms"] for row in rows if row["library"] == "messages")
    ours = next(row["processor_ms"] for row in rows if row["library"] == "gc3 one program")
    bound = max(alone + used, messages) + min(alone, messages) / tiles if tiles else 0
    return {
        "gain": ms["gc3"] / once,
        "bound": ms["gc3"] / bound if bound else 0,
        "by_hand": ms["gc3 by hand"] / once,
        "gloo": ms.get("gloo", 0) / once,
        "idle": max(0, 1 - messages / once),
        "processor_ms": ours,
    }


@click.command("fusion", cls=Script, examples=["python benchmarks/fusion.py --only 'fused_mlp*1gbit'"])
@click.option("--only", default="*", show_default=True, metavar="PATTERN", help="The comparisons, by name.")
@click.option("--rounds", default=6, show_default=True, type=click.IntRange(1), help="Turns of each way.")
@click.option(
    "--python", default=None, help="A Python with gc3, and for Gloo PyTorch; default: that of `make test-torch`."
)
def main(only: str, rounds: int, python: str | None) -> int:
    """Compare programs that compute with call after call."""
    chosen = python or str(ENVIRONMENTS / "gloo" / "bin" / "python")
    for case in fnmatch.filter(CASES, only):
        point = compared(chosen, case, rounds)
        ms = ", ".join(f"{row['library']} {row['ms']:.3g}" for row in point["rows"])
        click.echo(f"{case}: gain {point['gain']:.2f}, bound {point['bound']:.2f}, over by hand {point['by_hand']:.2f}")
        click.echo(f"  ms: {ms}; processor {point['processor_ms']:.3g}; link idle {100 * point['idle']:.0f} %")
        click.echo(f"  load when it began {point['load']:.1f}")
    return 0


if __name__ == "__main__":
    main()
