"""All tests and measurements of the CUDA engine that need a card: checks, times, a JSON file and a drawing.

    make bench-cuda            on an idle device, for 9 minutes at most; with QUICK=1 a minute
    benchmarks/cuda/on_card.sh the same on a machine without a network

Six stages, each of which is written to the file as soon as it is over; what did not fit into the time is said there,
and `--stages` does it alone later.

times: of 8 ranks on one device, float32, within CUDA graphs: ring and All Pairs AllReduce and direct AllToAll, the
interpreter next to kernels written by hand for the same schedule and protocol (hand.h), 1 KiB to 256 MiB per rank.
Derived: the overhead of interpretation, the share of the floor that the largest size reaches, the latency at 1 KiB,
and which protocol is best at which size.
sanitizer: the interpreter and the kernels by hand under compute-sanitizer, where there is one.
copies: what copy engines move beside what threadblocks store, AllGather and AllToAll in one step, outside of graphs:
of 8 ranks on one device, or of one on each of several.
tests: the tests marked gpu.
nccl: NCCL on the same card, where it takes several ranks per device.
overlay: all collectives with that NCCL and with GC3's library in front of it, whose programs serve them: by
nccl_perf.cc with several ranks on the device, by nccl-tests with a rank on each device where NCCL_TESTS names the
folder of their programs, and by PyTorch. Without a card: with GC3_CUDA_DRIVER, GC3_NVRTC and GC3_NCCL of tests/.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import itertools
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gc3 import __version__, _core, cuda, errors
from gc3 import nccl as gc3_nccl
from gc3.comm.export import export
from gc3.comm.selection import Row, Table
from gc3.comm.spec import Spec

ROOT = Path(__file__).resolve().parent.parent.parent
BINARY = Path(os.environ.get("BENCHMARK_BUILD", ROOT / "build" / "release")) / "gc3_cuda_benchmark"
WORKERS = 6  # processes of tests: they share the device, and most of their time goes into comparing on the host
PERF = BINARY.with_name("gc3_nccl_perf")
TESTS_ALONE = ("test_cuda.py", "test_cuda_communicator.py", "test_cuda_copies.py", "test_cuda_tensors.py")
TESTS_TOGETHER = ("test_cuda_device.py",)
TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
RANKS = 8
KIB, MIB = 1024, 1024**2
PROTOCOLS = ("Simple", "LL", "LL128")
# Threadblocks per rank: of rings as many as there are channels.
SCHEDULES = (("ring", 1), ("ring", 16), ("allpairs", 1), ("alltoall", 1))
# Bytes in the FIFOs for a byte of data.
WIRE = {"Simple": 1.0, "LL": 2.0, "LL128": 128 / 120}
# What is asked for.
OVERHEAD_LARGE, OVERHEAD_SMALL_US, FLOOR_SHARE, LATENCY_US = 1.10, 1.5, 0.70, 8.0
# A job of one rank: NCCL serves it, through the library.
PYTORCH = """
import torch, torch.distributed as dist
dist.init_process_group("nccl", init_method="tcp://127.0.0.1:29577", rank=0, world_size=1)
data = torch.ones(1024, device="cuda")
dist.all_reduce(data)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    dist.all_reduce(data)
graph.replay()
torch.cuda.synchronize()
assert data.sum().item() == 1024
dist.destroy_process_group()
"""
# The programs of the stage `overlay`, and whether they work in place.
SERVED = {
    "allreduce": ("ring_allreduce", True),
    "allgather": ("ring_allgather", True),
    "reducescatter": ("ring_reducescatter", False),
    "alltoall": ("direct_alltoall", False),
    "broadcast": ("flat_broadcast", True),
    "reduce": ("flat_reduce", False),
    "gather": ("flat_gather", False),
    "scatter": ("flat_scatter", False),
}
NCCL_TESTS = ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "broadcast", "reduce", "gather", "scatter")
EACH = 60.0  # seconds for a program of the stage `overlay`: a wait within NCCL may never end
SPARE = 5.0  # seconds in which a stage is not begun any more


class Clock:
    """How much of the time is left."""

    def __init__(self, seconds: float) -> None:
        """Begins now."""
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Seconds, at least a few, since a limit of none is no limit to `subprocess`."""
        return max(self._end - time.monotonic(), SPARE)

    def over(self) -> bool:
        """Whether nothing more should begin."""
        return self._end - time.monotonic() < SPARE


def execute(command: list[str], clock: Clock, settings: dict[str, str] | None = None) -> tuple[int, str, str]:
    """Returns exit status, output and errors; 124 where the time is out, with the output so far."""
    compiler = {} if os.environ.get("GC3_NVRTC") else {"GC3_NVRTC": nvrtc()}
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=clock.left(),
            env={**os.environ, **compiler, **(settings or {})},
        )
    except subprocess.TimeoutExpired as late:
        said = late.stdout or b""
        return 124, said.decode(errors="replace") if isinstance(said, bytes) else said, "the time is out"
    return done.returncode, done.stdout, done.stderr


def nvrtc() -> str:
    """Names a compiler that is there and fits the driver: C++ programs do not look into Python's packages."""
    newest = cuda.runtime().version // 1000
    for name in cuda.compilers():
        if int(name.rsplit(".", 1)[1]) > newest:
            continue
        try:
            ctypes.CDLL(name)
        except OSError:
            continue
        return name
    return ""


def copy_rate(clock: Clock) -> dict[str, Any]:
    """Returns the bytes per second that a device reads plus writes while it copies."""
    status, said, problem = execute([str(BINARY), "--copy"], clock)
    return json.loads(said) if status == 0 else {"failed": problem.strip()}


def floor_us(row: dict[str, Any], rate: float) -> tuple[float, float]:
    """Returns the least time of a point: each input read and each output written once; and with its FIFO traffic."""
    size = row["bytes_per_rank"]
    sent = size * (RANKS - 1) / RANKS * (1 if row["schedule"] == "alltoall" else 2)
    least = RANKS * 2 * size
    return 1e6 * least / rate, 1e6 * (least + RANKS * sent * 2 * WIRE[row["protocol"]]) / rate


def times(sizes: list[int], clock: Clock) -> dict[str, Any]:
    """Returns the copy rate and a row for each point; prints them as they come. Slowest sizes come last of a line."""
    copies = copy_rate(clock)
    rate = copies.get("bytes_per_second")
    rows: list[dict[str, Any]] = []
    for (schedule, channels), protocol in itertools.product(SCHEDULES, PROTOCOLS):
        about = {"schedule": schedule, "channels": channels, "protocol": protocol}
        if clock.over():
            rows.append({**about, "failed": "the time is out"})
            continue
        counts = [str(size // 4) for size in sizes if size >= RANKS * channels * 16]
        command = [str(BINARY), str(ROOT), schedule, protocol, str(channels), *counts]
        status, said, problem = execute(command, clock)
        found = [json.loads(line) for line in said.splitlines() if line.endswith("}")]
        for row in found:
            if not row["correct"]:
                row["failed"] = "wrong results"
            elif rate is not None:
                row["floor_us"], row["floor_with_fifos_us"] = floor_us(row, rate)
        if status != 0 and len(found) < len(counts):
            found.append({**about, "failed": problem.strip()[-2000:]})
        rows += found
        print("\n".join(json.dumps(row) for row in found), flush=True)
    return {"copy": copies, "rows": rows, "verdicts": verdicts(rows), "crossovers": crossovers(rows)}


def copies(sizes: list[int], clock: Clock) -> dict[str, Any]:
    """Returns, for each program and protocol, the rows of `gc3 bench`; and who moved the messages."""
    devices = cuda.runtime().devices
    ranks = devices if devices > 1 else RANKS
    found: dict[str, Any] = {"ranks": ranks, "devices": devices}
    for name, protocol in itertools.product(("direct_allgather", "direct_alltoall"), ("Simple", "Copy")):
        command = [sys.executable, "-m", "gc3", "bench", f"{name}:R={ranks},protocol={protocol}", "--json"]
        command += ["--engine", f"cuda:devices={'+'.join(map(str, range(devices)))}", "-f", "16"]
        command += ["-b", str(max(sizes[0], 64 * KIB)), "-e", str(min(sizes[-1], 64 * MIB))]  # the host checks them
        status, said, problem = execute(command, clock)
        rows = json.loads(said) if status == 0 else {"failed": (said + problem).strip()[-2000:]}
        found[f"{name} {protocol}"] = {"said": problem.strip()[-200:], "times": rows}
        print(name, protocol, json.dumps(found[f"{name} {protocol}"]), flush=True)
    return found


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
        if axes.lines:
            axes.legend()
    figure.savefig(path)


def tests(clock: Clock) -> dict[str, Any]:
    """Runs the tests marked gpu; the long ones, which use nothing but the device, in several processes if possible."""
    # Of the plugins that a machine happens to have, only these: others may not fit this pytest.
    plugins = ["-p", "pytest_timeout", "-p", "no:cacheprovider"]
    workers = ["-p", "xdist.plugin", "-n", str(WORKERS)] if importlib.util.find_spec("xdist") else []
    found: dict[str, Any] = {"ok": True}
    for names, extra in ((TESTS_ALONE, []), (TESTS_TOGETHER, workers)):
        command = [sys.executable, "-m", "pytest", "-m", "gpu", "--durations=10", "--timeout=100", *plugins, *extra]
        command += [f"tests/cuda/{name}" for name in names]
        status, said, problem = execute(command, clock, {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"})
        print(said, problem[-1000:], flush=True)
        found["ok"] = found["ok"] and status == 0
        found[" ".join(names)] = {"status": status, "said": said.strip().splitlines()[-20:]}
    return found


def sanitizer(clock: Clock) -> dict[str, Any]:
    """Returns what each tool of compute-sanitizer thinks of runs of all schedules and protocols."""
    program = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")
    if program is None:
        return {"failed": "compute-sanitizer is not found"}
    found: dict[str, Any] = {}
    for tool in TOOLS:
        if clock.over():
            found[tool] = "the time is out"
            continue
        command = [program, "--tool", tool, "--error-exitcode", "9", str(BINARY), "--check", str(ROOT)]
        status, said, problem = execute(command, clock)
        found[tool] = "clean" if status == 0 else (said + problem)[-2000:]
        print(tool, found[tool], flush=True)
    return found


def nccl(sizes: list[int], clock: Clock) -> dict[str, Any]:
    """Returns what NCCL needs for an AllReduce of each size on the same device, or why it says nothing."""
    command = [sys.executable, "benchmarks/cuda/nccl_peer.py", str(RANKS), *map(str, sizes)]
    status, said, problem = execute(command, clock)
    print(said[-2000:], flush=True)
    return json.loads(said.splitlines()[-1]) if status == 0 else {"failed": (said + problem)[-2000:]}


def write_programs(folder: Path, sizes: set[int]) -> None:
    """Writes a program for each collective and number of ranks."""
    rows: list[Row] = []
    for collective, (name, in_place) in SERVED.items():
        spec = Spec(name, (("R", "ranks"),))
        rows.append(Row(collective, _core.Limits(in_place=in_place, root=0), spec, "", ""))
    export(Table(tuple(rows)), sorted(sizes), folder)


def overlay_commands(largest: int, devices: int) -> dict[str, list[str]]:
    """Returns the programs that are run with NCCL alone and behind the library, by name."""
    size = ["-b", "1024", "-e", str(min(largest, 4 * MIB)), "-f", "4"]
    commands: dict[str, list[str]] = {}
    for kind, options in (("calls", []), ("graphs", ["-G", "1"]), ("non-blocking", ["-N", "1"])):
        commands[f"{RANKS} ranks, {kind}"] = [str(PERF), "all", *size, "-g", str(RANKS), "-n", "20", *options]
    folder = os.environ.get("NCCL_TESTS", "")
    for name in NCCL_TESTS if folder else ():
        program = Path(folder) / f"{name}_perf"
        if program.exists():
            commands[program.name] = [str(program), *size, "-g", str(devices), "-n", "20"]
            commands[f"{program.name}, graphs"] = [*commands[program.name], "-G", "1"]
    if importlib.util.find_spec("torch") and not os.environ.get("GC3_CUDA_DRIVER"):
        commands["PyTorch"] = [sys.executable, "-c", PYTORCH]
    return commands


def overlay(sizes: list[int], clock: Clock) -> dict[str, Any]:
    """Returns what programs print with NCCL alone and behind the library, and what served their calls."""
    devices = cuda.runtime().devices
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="gc3-") as folder:
        programs, alone = Path(folder) / "programs", Path(folder) / "nccl"
        write_programs(programs, {RANKS, max(devices, 2)})
        alone.mkdir()
        for name, command in overlay_commands(sizes[-1], devices).items():
            log = Path(folder) / "log" / str(len(found))
            log.parent.mkdir(exist_ok=True)
            try:
                in_front = gc3_nccl.environment(programs, log)
                (alone / "libnccl.so.2").unlink(missing_ok=True)
                (alone / "libnccl.so.2").symlink_to(gc3_nccl.below())
            except errors.Gc3Error as problem:
                return {"failed": str(problem)}
            several = {"NCCL_MULTI_RANK_GPU_ENABLE": "1", "NCCL_MAX_CTAS": "4"} if str(PERF) in command else {}
            paths = {} if name == "PyTorch" else {"LD_LIBRARY_PATH": with_existing("LD_LIBRARY_PATH", str(alone))}
            in_front["LD_PRELOAD"] = with_existing("LD_PRELOAD", in_front["LD_PRELOAD"])
            results: dict[str, Any] = {}
            for way, settings in (("NCCL", {}), ("GC3", in_front)):
                if clock.over():
                    results[way] = {"failed": "the time is out"}
                    continue
                limit = Clock(min(EACH, clock.left()))
                status, said, problem = execute(command, limit, {**several, **paths, **settings})
                results[way] = {"ok": status == 0, "said": said.splitlines()[-200:]}
                if status != 0:
                    results[way]["failed"] = problem[-2000:]
                print(f"{name}, {way}: {'ok' if status == 0 else problem[-500:]}", flush=True)
            if any(log.glob("*.json")):
                calls = [s for process in gc3_nccl.read_logs(log) for s in process.served]
                results["served"] = {
                    "programs": sum(s.calls for s in calls if s.by != "NCCL"),
                    "NCCL": sum(s.calls for s in calls if s.by == "NCCL"),
                }
            found[name] = results
    return found


def with_existing(variable: str, first: str) -> str:
    """Returns the value of a list of paths with `first` before what it has."""
    before = os.environ.get(variable)
    return f"{first}:{before}" if before else first


def main() -> int:
    """Runs everything; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few sizes, by default only times: does it work at all")
    parser.add_argument("--stages", help="the stages to run, in this order, such as times,sanitizer,tests,nccl,overlay")
    parser.add_argument("--seconds", type=float, default=540, help="begin nothing after so many")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "benchmarks" / "results" / "cuda.json")
    options = parser.parse_args()
    clock = Clock(options.seconds)
    runtime = cuda.runtime()
    sizes = [KIB, MIB] if options.quick else [KIB * 4**i for i in range(10)]
    stages: dict[str, Callable[[], dict[str, Any]]] = {
        "times": lambda: times(sizes, clock),
        "copies": lambda: copies(sizes, clock),
        "sanitizer": lambda: sanitizer(clock),
        "tests": lambda: tests(clock),
        "nccl": lambda: nccl(sizes, clock),
        "overlay": lambda: overlay(sizes, clock),
    }
    data: dict[str, Any] = {
        "gc3": __version__,
        "device": runtime.describe(0),
        "driver": runtime.version,
        "python": platform.python_version(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    print(json.dumps(data), flush=True)
    if options.output.exists():  # of other stages
        data = {**json.loads(options.output.read_text()), **data}
    options.output.parent.mkdir(parents=True, exist_ok=True)
    chosen = options.stages.split(",") if options.stages else ["times"] if options.quick else list(stages)
    for stage in chosen:
        data[stage] = {"failed": "the time is out"} if clock.over() else stages[stage]()
        options.output.write_text(json.dumps(data, indent=1) + "\n")
    found = data.get("times", {})
    if importlib.util.find_spec("matplotlib"):
        draw(found.get("rows", []), options.output.with_suffix(".svg"))
    for verdict in found.get("verdicts", []):
        word = "ok    " if verdict["ok"] else "MISSED"
        print(f"{word} {verdict['what']}: {verdict['reached']:.3f} ({verdict['asked']})")
    bad = "times" in chosen and any("failed" in row for row in found.get("rows", [{"failed": "no rows"}]))
    return 1 if bad or ("tests" in chosen and not data["tests"].get("ok", False)) else 0


if __name__ == "__main__":
    sys.exit(main())
