"""All of the CUDA engine that needs a card, in one go: checks, times, a JSON file and a drawing.

    make bench-cuda            some 10 minutes on an idle device; with QUICK=1 a minute

Checks: the tests marked gpu; the interpreter and the kernels by hand under compute-sanitizer where there is one.
Times, of 8 ranks on one device, float32, within CUDA graphs: ring and All Pairs AllReduce and direct AllToAll, the
interpreter next to kernels written by hand for the same schedule and protocol (hand.h), 1 KiB to 256 MiB per rank.
Derived: the overhead of interpretation, the share of the floor that the largest size reaches, the latency at 1 KiB,
and which protocol is best at which size. NCCL on the same card, where it takes several ranks per device.
"""

from __future__ import annotations

import argparse
import itertools
import json
import platform
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import nccl_peer

from gc3 import __version__, cuda

ROOT = Path(__file__).resolve().parent.parent.parent
BINARY = ROOT / "build" / "release" / "gc3_cuda_benchmark"
RANKS = 8
KIB, MIB = 1024, 1024**2
PROTOCOLS = ("Simple", "LL", "LL128")
# Threadblocks per rank: of rings as many as there are channels.
SCHEDULES = (("ring", 1), ("ring", 16), ("allpairs", 1), ("alltoall", 1))
# Bytes in the FIFOs for a byte of data.
WIRE = {"Simple": 1.0, "LL": 2.0, "LL128": 128 / 120}
# What is asked for.
OVERHEAD_LARGE, OVERHEAD_SMALL_US, FLOOR_SHARE, LATENCY_US = 1.10, 1.5, 0.70, 8.0


def point(schedule: str, channels: int, protocol: str, size: int, iterations: int) -> dict[str, Any]:
    """Returns what the C++ benchmark says of one point, or why it says nothing."""
    command = [str(BINARY), str(ROOT), schedule, protocol, str(channels), str(size // 4), str(iterations)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    about = {"schedule": schedule, "channels": channels, "protocol": protocol, "bytes_per_rank": size}
    if done.returncode != 0:
        return {**about, "failed": (done.stdout + done.stderr).strip()[-2000:]}
    return json.loads(done.stdout)


def copy_rate() -> dict[str, Any]:
    """Returns the bytes per second that a device reads plus writes while it copies."""
    done = subprocess.run([str(BINARY), "--copy"], capture_output=True, text=True, check=False)
    return json.loads(done.stdout) if done.returncode == 0 else {"failed": done.stderr.strip()}


def floor_us(row: dict[str, Any], rate: float) -> tuple[float, float]:
    """Returns the least time of a point: each input read and each output written once; and with its FIFO traffic."""
    size = row["bytes_per_rank"]
    sent = size * (RANKS - 1) / RANKS * (1 if row["schedule"] == "alltoall" else 2)
    least = RANKS * 2 * size
    return 1e6 * least / rate, 1e6 * (least + RANKS * sent * 2 * WIRE[row["protocol"]]) / rate


def times(sizes: list[int], rate: float | None) -> list[dict[str, Any]]:
    """Returns a row for each point; prints them as they come."""
    rows: list[dict[str, Any]] = []
    for (schedule, channels), protocol, size in itertools.product(SCHEDULES, PROTOCOLS, sizes):
        if size < RANKS * channels * 16:
            continue
        row = point(schedule, channels, protocol, size, 200 if size <= MIB else 20 if size <= 16 * MIB else 5)
        if "failed" not in row and rate is not None:
            row["floor_us"], row["floor_with_fifos_us"] = floor_us(row, rate)
        rows.append(row)
        print(json.dumps(row), flush=True)
    return rows


def verdicts(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns each number that is asked for beside the number reached."""
    found: list[dict[str, Any]] = []

    def judge(what: str, asked: float, reached: float, *, at_most: bool) -> None:
        ok = reached <= asked if at_most else reached >= asked
        found.append({"what": what, "asked": asked, "reached": reached, "ok": ok})

    good = [row for row in rows if "failed" not in row]
    for row in good:
        name = f"{row['schedule']} x{row['channels']} {row['protocol']} {row['bytes_per_rank']} B"
        interpreted, by_hand = row["interpreted_us"], row["by_hand_us"]
        if row["bytes_per_rank"] >= MIB:
            judge(f"{name}: interpreted / by hand", OVERHEAD_LARGE, interpreted / by_hand, at_most=True)
        if row["bytes_per_rank"] == KIB:
            judge(f"{name}: interpreted - by hand, us", OVERHEAD_SMALL_US, interpreted - by_hand, at_most=True)
    for schedule in ("ring", "allpairs", "alltoall"):
        largest = [
            r for r in good if r["schedule"] == schedule and r["bytes_per_rank"] >= 256 * MIB and "floor_us" in r
        ]
        if largest:
            share = max(r["floor_with_fifos_us"] / r["interpreted_us"] for r in largest)
            judge(f"{schedule}: share of the floor at 256 MiB, FIFO traffic counted", FLOOR_SHARE, share, at_most=False)
    for row in good:
        if (row["schedule"], row["protocol"], row["bytes_per_rank"]) == ("allpairs", "LL", KIB):
            judge("All Pairs LL AllReduce of 1 KiB in a graph, us", LATENCY_US, row["interpreted_us"], at_most=True)
    return found


def crossovers(rows: list[dict[str, Any]]) -> dict[str, list[tuple[int, str]]]:
    """Returns the fastest protocol at each size, by schedule."""
    best: dict[str, dict[int, tuple[float, str]]] = {}
    for row in rows:
        if "failed" in row:
            continue
        name = f"{row['schedule']} x{row['channels']}"
        mine = (row["interpreted_us"], row["protocol"])
        of_size = best.setdefault(name, {})
        size = row["bytes_per_rank"]
        of_size[size] = min(of_size.get(size, mine), mine)
    return {name: [(size, protocol) for size, (_, protocol) in sorted(sizes.items())] for name, sizes in best.items()}


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Draws time over size, a panel per schedule, a line per protocol."""
    from matplotlib.figure import Figure  # noqa: PLC0415  only here

    figure = Figure(figsize=(4 * len(SCHEDULES), 3.5), layout="constrained")
    for panel, (schedule, channels) in enumerate(SCHEDULES, start=1):
        axes = figure.add_subplot(1, len(SCHEDULES), panel, title=f"{schedule} x{channels}")
        axes.set(xscale="log", yscale="log", xlabel="bytes per rank", ylabel="us")
        for protocol in PROTOCOLS:
            mine = [r for r in rows if (r["schedule"], r["channels"], r["protocol"]) == (schedule, channels, protocol)]
            points = [(r["bytes_per_rank"], r["interpreted_us"]) for r in mine if "failed" not in r]
            if points:
                axes.plot(*zip(*points, strict=True), marker=".", label=protocol)
        axes.legend()
    figure.savefig(path)


def tests() -> dict[str, Any]:
    """Runs the tests marked gpu, and what compute-sanitizer thinks of a run."""
    pytest = subprocess.run(
        [sys.executable, "-m", "pytest", "-m", "gpu", "tests"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    found: dict[str, Any] = {"pytest": pytest.stdout.strip().splitlines()[-1:], "ok": pytest.returncode == 0}
    sanitizer = shutil.which("compute-sanitizer")
    if sanitizer is None:
        return {**found, "compute-sanitizer": "not found"}
    for tool in ("memcheck", "initcheck"):
        command = [sanitizer, "--tool", tool, "--error-exitcode", "9", str(BINARY), "--check", str(ROOT)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        found[f"compute-sanitizer {tool}"] = "clean" if done.returncode == 0 else done.stdout[-2000:]
    return found


def main() -> int:
    """Runs everything; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few sizes, no tests: does it work at all")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "benchmarks" / "results" / "cuda.json")
    options = parser.parse_args()
    runtime = cuda.runtime()
    about = {
        "gc3": __version__,
        "device": runtime.describe(0),
        "driver": runtime.version,
        "python": platform.python_version(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    print(json.dumps(about), flush=True)
    sizes = [KIB, MIB] if options.quick else [KIB * 4**i for i in range(10)]
    copies = copy_rate()
    rows = times(sizes, copies.get("bytes_per_second"))
    data = {
        **about,
        "copy": copies,
        "tests": None if options.quick else tests(),
        "rows": rows,
        "verdicts": verdicts(rows),
        "crossovers": crossovers(rows),
        "nccl": nccl_peer.compare(RANKS, sizes),
    }
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(data, indent=1) + "\n")
    draw(rows, options.output.with_suffix(".svg"))
    for verdict in data["verdicts"]:
        word = "ok    " if verdict["ok"] else "MISSED"
        print(f"{word} {verdict['what']}: {verdict['reached']:.3f} ({verdict['asked']})")
    return 0 if all("failed" not in row for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
