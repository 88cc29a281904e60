"""What communicators learn while their calls run: how soon, what it costs, and under a load that comes and goes.

    python benchmarks/adapting.py [--ranks 2] [--seconds 20] [--phases 4] [start] [cost] [load] [generate]

start  from a bad table: the speed of the calls after 2,000, beside that of the default table and of the bad one
cost   the time of a call when nothing is to be learned any more, beside the same program without learning
load   other processes begin and end: time of each phase beside that of the best fixed program for the phase. Which
       one is the best is decided by half of the turns, and its time is that of the other half, since the least of
       several measured times is too small by chance
generate  sizes that no row was made for: the time with generated programs beside that without them, and which these are

All are measured in turn, block by block, in the same processes; times are those of the slowest rank. Nothing is kept.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import gc3
from gc3.comm.adapting import candidates
from gc3.comm.selection import Table
from gc3.comm.spec import Spec
from gc3.support import files

BAD = {"algorithm": "ring_allreduce", "slots": 2, "slot_bytes": 512}
SIZES = (256, 16 << 10, 1 << 20)
UNKNOWN = (600_000, 3_000_000)  # at 2 ranks only rows without an end serve them
PAIRS = 5  # of communicators
BLOCK = 1024  # calls, among which there are looks
SHORT, MORE = 4096, 4  # bytes of calls that are looked at less often, so that a block has so many times as many
LEAST_TURNS = 4  # of a phase
LOADS = 2  # other processes, each of which uses a core and memory
BUSY = "import numpy\na = numpy.ones(1 << 20)\nwhile True: a += 1"


def table(folder: str, name: str, program: dict[str, Any]) -> str:
    """Writes a table with one program for AllReduce, and returns its path."""
    path = Path(folder) / f"{name}.json"
    row = {"collective": "allreduce", "program": program}
    files.replace_text(str(path), json.dumps({"format": "gc3-selection-1", "rows": [row]}))  # another rank may read it
    return str(path)


def block(comm: gc3.Communicator, x: np.ndarray, out: np.ndarray, calls: int) -> float:
    """Returns the seconds of a call on this rank, on average."""
    comm.barrier()
    start = time.perf_counter()
    for _ in range(calls):
        comm.all_reduce(x, out=out)
    return (time.perf_counter() - start) / calls


def slowest(comm: gc3.Communicator, times: list[float]) -> list[float]:
    """Returns the largest of all ranks' times, each."""
    return [float(t) for t in comm.all_reduce(np.array(times), op="max")]


def learned(comm: gc3.Communicator, size: int) -> str:
    """What is known of such calls."""
    return comm.explain("allreduce", size // 4).learned


def program_of(text: str, base: Table) -> Spec:
    """The program that was learned; it is described by its text."""
    known = {str(row.spec): row.spec for row in (*base.rows, *candidates(base))}
    return next(spec for name, spec in sorted(known.items(), key=lambda item: -len(item[0])) if text.startswith(name))


def start(me: gc3.Communicator, folder: str, seconds: float, say: Any) -> None:
    """From a bad table."""
    bad = table(folder, "bad", BAD)
    for size in SIZES:
        x, y = np.ones(size // 4, np.float32), np.empty(size // 4, np.float32)
        with (
            gc3.init(adapt=False) as good,
            gc3.init(table=bad, adapt=False) as poor,
            gc3.init(table=bad, adapt=True) as new,
        ):
            for comm in (good, poor):
                block(comm, x, y, 50)
            first = block(new, x, y, 2000)
            found: dict[str, list[float]] = {"default": [], "bad": [], "learned": []}
            calls = 40
            until = time.monotonic() + seconds / len(SIZES)
            while float(me.broadcast(np.array([float(time.monotonic() < until)]))[0]):
                for name, comm in (("default", good), ("learned", new), ("bad", poor)):
                    found[name].append(block(comm, x, y, calls))
            times = dict(zip(found, slowest(me, [statistics.median(t) for t in found.values()]), strict=True))
            mean = slowest(me, [first])[0]
            say(
                f"{size:>8} B  us: bad {1e6 * times['bad']:.1f}, default {1e6 * times['default']:.1f}, learned "
                f"{1e6 * times['learned']:.1f} (speed {100 * times['default'] / times['learned']:.0f} % of the default "
                f"table's); the first 2,000 calls {1e6 * mean:.1f} on average\n            {learned(new, size)}"
            )


def cost(me: gc3.Communicator, folder: str, seconds: float, say: Any) -> None:
    """Of learning when there is nothing to learn.

    Where a communicator's memory is makes a difference of some per cent as well, so there are several pairs of them.
    """
    for size in SIZES:
        found: list[float] = []
        for number in range(PAIRS):
            found.append(pair(me, size, f"{folder}/{number}", seconds / len(SIZES) / PAIRS))
        here = slowest(me, found)
        say(
            f"{size:>8} B  learning takes {statistics.median(here):.4f} of the time without, median of {PAIRS} pairs "
            f"of communicators ({min(here):.4f} to {max(here):.4f})"
        )


def pair(me: gc3.Communicator, size: int, folder: str, seconds: float) -> float:
    """Returns the ratio of the times of a communicator that has learned, and of one that runs the same program."""
    Path(folder).mkdir(exist_ok=True)
    x, y = np.ones(size // 4, np.float32), np.empty(size // 4, np.float32)
    with ExitStack() as stack:
        new = stack.enter_context(gc3.init(adapt=True))
        for _ in range(40):
            block(new, x, y, 500)
            if "the best of" in learned(new, size):
                break
        text = learned(new, size)
        if text.startswith("the row's program"):
            same = stack.enter_context(gc3.init(adapt=False))
        else:
            spec = program_of(text, Table.default())
            same = stack.enter_context(gc3.init(table=table(folder, f"same{size}", spec.data()), adapt=False))
        block(same, x, y, 500)
        ratios: list[float] = []
        until = time.monotonic() + seconds
        turn = 0
        while float(me.broadcast(np.array([float(time.monotonic() < until)]))[0]):
            order = (new, same) if turn % 2 else (same, new)
            times = [block(comm, x, y, BLOCK * (MORE if size < SHORT else 1)) for comm in order]
            ratios.append(times[turn % 2 == 0] / times[turn % 2])
            turn += 1
        return statistics.median(ratios)


def generate(me: gc3.Communicator, folder: str, seconds: float, say: Any) -> None:
    """For sizes in no table."""
    del folder
    for size in UNKNOWN:
        x, y = np.ones(size // 4, np.float32), np.empty(size // 4, np.float32)
        with ExitStack() as stack:
            comms: list[gc3.Communicator] = []
            for value in ("0", "1"):
                os.environ["GC3_GENERATE"] = value
                comms.append(stack.enter_context(gc3.init(adapt=True, adapt_share=0.2)))
            times: tuple[list[float], list[float]] = ([], [])
            until = time.monotonic() + seconds / len(UNKNOWN)
            while float(me.broadcast(np.array([float(time.monotonic() < until)]))[0]):
                for comm, taken in zip(comms, times, strict=True):
                    taken.append(block(comm, x, y, 40))
            last = slowest(me, [statistics.median(taken[len(taken) // 2 :]) for taken in times])
            say(
                f"{size:>8} B  us: without {1e6 * last[0]:.1f}, with generated programs {1e6 * last[1]:.1f}, "
                f"{last[1] / last[0]:.2f} of that, over {40 * (len(times[0]) - len(times[0]) // 2)} calls of each"
            )
            say(f"            {learned(comms[1], size)}")


def half_mean(times: list[float], half: int) -> float:
    """Of every other turn."""
    return statistics.mean(times[half::2])


def load(me: gc3.Communicator, folder: str, seconds: float, phases: int, say: Any) -> None:
    """Others begin and end."""
    size = 64 << 10
    x, y = np.ones(size // 4, np.float32), np.empty(size // 4, np.float32)
    programs = {
        "ring": {"algorithm": "ring_allreduce"},
        "pairs": {"algorithm": "allpairs_allreduce"},
        "pairs LL": {"algorithm": "allpairs_allreduce", "protocol": "LL"},
        "direct": {"algorithm": "direct_allreduce"},
        "doubling": {"algorithm": "recursive_doubling_allreduce"},
        "bad": BAD,
    }
    with ExitStack() as stack:
        fixed = {
            name: stack.enter_context(gc3.init(table=table(folder, name.replace(" ", "_"), data), adapt=False))
            for name, data in programs.items()
        }
        fixed["default"] = stack.enter_context(gc3.init(adapt=False))
        new = stack.enter_context(gc3.init(table=table(folder, "bad", BAD), adapt=True))
        for comm in fixed.values():
            block(comm, x, y, 50)
        ratios: tuple[list[float], list[float]] = ([], [])
        for phase in range(phases):
            loaded = phase % 2 == 1
            count = LOADS if loaded and me.rank == 0 else 0
            others = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(count)]
            time.sleep(1.0 if others else 0)
            me.barrier()
            taken: dict[str, list[float]] = {name: [] for name in (*fixed, "learned")}
            until = time.monotonic() + seconds / phases
            turn = 0
            while turn < LEAST_TURNS or float(me.broadcast(np.array([float(time.monotonic() < until)]))[0]):
                order = [*fixed.items(), ("learned", new)]
                random.Random(turn).shuffle(order)  # noqa: S311 - no secret, the same on all ranks
                for name, comm in order:
                    taken[name].append(block(comm, x, y, 100))
                turn += 1
            for other in others:
                other.kill()
                other.wait()
            halves = [
                dict(zip(taken, slowest(me, [half_mean(t, half) for t in taken.values()]), strict=True))
                for half in (0, 1)
            ]
            bests = [min(fixed, key=lambda name: times[name]) for times in halves]
            ratio = sum(halves[1 - h]["learned"] / halves[1 - h][bests[h]] for h in (0, 1)) / 2
            ratios[loaded].append(ratio)
            say(
                f"{'loaded' if loaded else 'quiet':>8}  us: "
                + ", ".join(f"{name} {5e5 * (halves[0][name] + halves[1][name]):.1f}" for name in taken)
                + f"; learned takes {ratio:.2f} of {' and '.join(dict.fromkeys(bests))}, "
                f"over {100 * len(taken['bad'])} calls of each"
            )
            say(f"          {learned(new, size)}")
        for name, found in zip(("quiet", "loaded"), ratios, strict=True):
            if found:
                say(f"{name:>8}  median {statistics.median(found):.2f} of {len(found)} phases")


def rank(me: gc3.Communicator, what: list[str], seconds: float, phases: int, folder: str) -> list[str]:
    """On each rank; returns the lines."""
    os.environ.update(RANK=str(me.rank), WORLD_SIZE=str(me.size))  # for the communicators of each part
    lines: list[str] = []
    for name, run in (("start", start), ("cost", cost), ("load", partial(load, phases=phases)), ("generate", generate)):
        if name in what:
            lines.append(f"{name}:")
            run(me, folder, seconds, say=lines.append)
    return lines


def main() -> None:
    """Prints the lines of rank 0."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=20, help="of each part")
    parser.add_argument("--phases", type=int, default=4, help="of the part `load`, every other one loaded")
    parser.add_argument("what", nargs="*", default=["start", "cost", "load", "generate"])
    options = parser.parse_args()
    os.environ["GC3_CACHE"] = "off"
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
    print(f"{name}, {os.cpu_count()} cores, {options.ranks} ranks: AllReduce of float32", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        found = gc3.spawn(rank, options.ranks, options.what, options.seconds, options.phases, folder)
    sys.stdout.write("\n".join(found[0]) + "\n")


if __name__ == "__main__":
    main()
