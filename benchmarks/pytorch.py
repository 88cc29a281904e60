"""gc3 beside Gloo under PyTorch: times of calls and of training steps, measured in turns in the same processes.

Not called torch.py, because Python would then find it where a program in this folder imports PyTorch.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

import click
from peers import record

from gc3.cli.main import Script
from gc3.cli.sizes import format_size
from gc3.runtime.measure import machine

ROOT = Path(__file__).resolve().parent
RANKS = ROOT / "training" / "rank.py"
ENVIRONMENT = ROOT.parent / "build" / "peers" / "gloo" / "bin" / "python"
KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
STEPS = ("transformer, DDP", "transformer, FSDP2", "ResNet-18, DDP", "tensor parallel token", "experts")
TIERS = ("gc3 in C++", "gc3 in Python")
SIZES = (1 << 10, 16 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20)
STARTS = {
    "torchrun": "each rank in a session of its own, not pinned, as torchrun starts them",
    "run": "all ranks in one session, each pinned to its share of the cores, as `gc3 run` starts them",
}
GRACE_S = 120  # for PyTorch's import, and for the last point


@contextmanager
def busy(loops: int) -> Iterator[None]:
    """Other work on the machine: processes that never wait."""
    made = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(loops)]
    try:
        yield
    finally:
        for one in made:
            one.kill()
            one.wait()


def measured(python: str, ranks: int, start: str, asked: Mapping[str, Any]) -> Iterator[Any]:
    """Starts the ranks, and yields the points that rank 0 prints."""
    with tempfile.TemporaryDirectory() as folder:
        fixed = {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "MEETING": f"file://{folder}/meeting"}
        fixed |= {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "GC3_PIN": str(int(start == "run"))}
        started = [
            subprocess.Popen(
                [python, str(RANKS), json.dumps(asked)],
                env={**os.environ, **fixed, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
                text=True,
                start_new_session=start == "torchrun",
            )
            for rank in range(ranks)
        ]
        try:
            assert started[0].stdout is not None  # noqa: S101 - it is a pipe
            for line in started[0].stdout:
                if line.startswith("{"):
                    yield json.loads(line)
            deadline = time.monotonic() + GRACE_S
            bad = [rank for rank, one in enumerate(started) if one.wait(max(1, deadline - time.monotonic())) != 0]
        finally:
            for one in started:
                one.kill()
                one.wait()
    if bad:
        raise click.ClickException(f"rank {bad[0]} of {ranks} has failed; its output is above")


def row(point: Mapping[str, Any]) -> list[str]:
    """A point as a row of the table."""
    us = point["us"]
    ratio = us["gloo"]["median"] / us[TIERS[0]]["median"]
    name = f"{point['call']}, {format_size(point['bytes'])}" if "call" in point else point["step"]
    shown = [f"{us[of]['median']:.4g} ({us[of]['p99']:.4g})" for of in ("gloo", *TIERS)]
    without = [f"{us[of]['median']:.4g}" if of in us else "" for of in ("alone", "DDP alone")]
    return [str(point["ranks"]), name, *shown, f"{ratio:.3g}", *without]


def table(points: Sequence[Mapping[str, Any]]) -> str:
    """The table of a start, in Markdown."""
    lines = [
        "| Ranks | What | Gloo | gc3 in C++ | gc3 in Python | Gloo / C++ | Alone | DDP alone |",
        "|---:|---|---:|---:|---:|---:|---:|---:|",
    ]
    return "\n".join([*lines, *("| " + " | ".join(row(point)) + " |" for point in points)])


@click.command(
    "pytorch",
    cls=Script,
    examples=[
        "python benchmarks/pytorch.py --ranks 2,4 --minutes 2",
        "python benchmarks/pytorch.py --what steps --ranks 2 --minutes 3 --json steps.json",
        "python benchmarks/pytorch.py --what calls --busy 2 --sizes 1024,1048576",
    ],
)
@click.option("--ranks", "ranks", default="2,4", show_default=True, help="Numbers of ranks, one after the other.")
@click.option("--what", type=click.Choice(["calls", "steps", "all"]), default="all", show_default=True)
@click.option("--step", "steps", type=click.Choice(STEPS), multiple=True, default=STEPS, help="Some of the steps.")
@click.option("--sizes", default=",".join(map(str, SIZES)), show_default=True, help="Bytes of the largest buffer.")
@click.option(
    "--start", type=click.Choice(list(STARTS)), default="torchrun", show_default=True, help="How ranks start."
)
@click.option("--busy", "loops", type=click.IntRange(0), default=0, help="Processes that compute all the time beside.")
@click.option("--minutes", type=click.FloatRange(0.1), default=4.0, show_default=True, help="For all of it, roughly.")
@click.option(
    "--json", "json_path", type=click.Path(dir_okay=False), help="A file of benchmarks/results to add the points to."
)
@click.option("--python", default=None, help="A Python with PyTorch and gc3; default: that of `make test-torch`.")
def pytorch(
    ranks: str,
    what: str,
    steps: tuple[str, ...],
    sizes: str,
    start: str,
    loops: int,
    minutes: float,
    json_path: str | None,
    python: str | None,
) -> None:
    """Compare gc3 with Gloo under PyTorch: medians in microseconds, and 99th percentiles in parentheses."""
    chosen = python or (str(ENVIRONMENT) if ENVIRONMENT.exists() else sys.executable)
    numbers = [int(n) for n in ranks.split(",")]
    done = subprocess.run([chosen, "-m", "gc3.torch", "build"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise click.ClickException(f"{chosen}: {done.stderr.strip()[-500:]}")
    asked = {
        "sizes": [int(size) for size in sizes.split(",")] if what != "steps" else [],
        "kinds": KINDS,
        "tokens": what != "steps",
        "steps": steps if what != "calls" else [],
        "seconds": 60 * minutes / len(numbers) - 10,
    }
    about = {"machine": machine(), "date": f"{date.today()}", "command": shlex.join(["python", *sys.argv])}
    said = re.sub(r", /\S+", "", done.stdout.splitlines()[-1])  # without the place of the backend
    about |= {"version": record.version(), "torch": said, "start": STARTS[start], "busy": loops}
    click.echo(f"{about['start']}; {loops} busy processes beside\n{about['torch']}")
    points: list[Any] = []
    with busy(loops):
        for n in numbers:
            for point in measured(chosen, n, start, asked):
                points.append(point)
                click.echo("  ".join(row(point)))
    click.echo("\n" + table(points))
    if json_path is not None:
        old = json.loads(Path(json_path).read_text()) if Path(json_path).exists() else []
        Path(json_path).write_text(json.dumps([*old, {**about, "points": points}], indent=1) + "\n")


if __name__ == "__main__":
    pytorch()
