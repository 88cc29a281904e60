"""How near the tuner comes to the fastest program of its whole space: `python benchmarks/tuner.py`.

In the simulator, prints for each size the time of the best program of the space, which it finds by simulating all of
them, that of the tuner's program, and the number of the tuner's simulations. It leaves out programs whose busiest link
alone takes longer than the best so far. With --keep FILE each size of the exhaustive search is kept as it is done, so
that an interrupted run continues. With --sample it is one of so many programs, drawn at random, with --near one of
all programs that have the algorithm, shape and protocol of the tuned program of a size.

    python benchmarks/tuner.py --nccl --machines ndv4,ndv5 --nodes 8

Prints, without the exhaustive search, how many times as fast as the simulated NCCL the tuned program of each size is.

    python benchmarks/tuner.py --engine processes --ranks 2 --collectives allreduce [--tuned FILE] [--within 240]

On this machine, runs the tuner with a time limit, or takes the table that it has written to FILE. Then all candidates
are called at each size, the fastest of them also with other thresholds. Those that take less than twice as long as the
fastest one race for 6 s, and the tuned program and the best of them have turns in random order. Printed is the ratio of
the times of the program of the point, and of the row that serves the size, to that of the fastest of all: the median of
the turns' ratios with its interval. Sizes far apart come first; with --within none begins that would end later, if it
took as long as the longest one so far.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path

from gc3 import errors, sim
from gc3.comm.spec import Spec
from gc3.sim.nccl import Nccl
from gc3.tune import Goal, Record, Search, SimulatedTuner, Tuner, candidates
from gc3.tune.on_ranks import far_apart
from gc3.tune.point import FAR, Place, Point
from gc3.tune.race import FEWEST_ROUNDS, interval, race
from gc3.tune.ranges import ranges
from gc3.tune.timers import RankTimer, ThreadTimer

_RACE_S = 6.0  # of the race of all candidates at a size; the round in which it ends is finished
_TOGETHER = 4  # turns of the same ranks; others find other memory
_LAST_TURNS = 16  # of the tuned programs and the best ones
_VARIED = 16  # programs that are also tried with other thresholds
_LAST = 4  # best programs of the exhaustive search


def compare(
    machine: str, nodes: int, collective: str, sizes: list[int], keep: str | None, sample: int, *, near: bool
) -> list[float]:
    """Prints the table for a collective on a machine; returns the ratios of the times."""
    on = sim.platform(f"{machine}:N={nodes}" if nodes > 1 else machine)
    ranks = on.topology.rank_count
    search, brute = (Search(collective, on, ranks, in_place=collective == "broadcast") for _ in range(2))
    began = time.perf_counter()
    found = {size: search.fastest(size) for size in sizes}
    took = time.perf_counter() - began
    try:
        nccl: Nccl | None = Nccl(on, collective)
    except errors.UserError:
        nccl = None
    space = list(brute.space())
    print(f"# {machine}, {nodes} nodes, {collective}: {len(space)} programs; the tuner took {took:.1f} s")
    if 0 < sample < len(space) and not near:
        space = random.Random(sample).sample(space, sample)  # noqa: S311
    print(f"# {'size':>10} {'best':>10} {'tuned':>10} {'ratio':>6} {'tried':>5} {'NCCL':>10}", flush=True)
    ratios: list[float] = []
    for size in sizes:
        (spec, tuned), *_ = found[size][0]
        among = [each for each in space if _arm(each) == _arm(spec)] if near else space
        key = f"{machine} {nodes} {collective} {size} {f'near {_arm(spec)}' if near else len(space)}"
        best = _kept(keep).get(key)
        if best is None:
            best = tuned  # it is one of the space
            for other in among:
                best = min(best, brute.seconds(other, size, below=best))
            if keep:
                Path(keep).write_text(json.dumps({**_kept(keep), key: best}, indent=1))
        ratios.append(tuned / best)
        other = f"{1e6 * nccl(size).time_s:10.2f}" if nccl else " " * 10
        row = f"{size:>12} {1e6 * best:10.2f} {1e6 * tuned:10.2f} {ratios[-1]:6.3f} {found[size][1]:5} {other}  {spec}"
        print(row, flush=True)
    return ratios


def _arm(spec: Spec) -> tuple[object, ...]:
    """What a program has in common with those that only divide its work in another way."""
    divides = ("channels", "chunks", "parallel")
    return spec.algorithm, spec.protocol, spec.order, tuple(p for p in spec.parameters if p[0] not in divides)


def beside_nccl(machine: str, nodes: int, collective: str, sizes: list[int]) -> list[float]:
    """Prints the tuned programs of a collective beside NCCL; returns the ratios of NCCL's times to theirs."""
    on = sim.platform(f"{machine}:N={nodes}" if nodes > 1 else machine)
    nccl = Nccl(on, collective)
    tuner = SimulatedTuner(Goal((collective,), (on.topology.rank_count,), tuple(sizes), engine="sim"), on)
    began = time.perf_counter()
    list(tuner.points())
    print(f"# {machine}, {nodes} nodes, {collective}: the tuner took {time.perf_counter() - began:.1f} s")
    print(f"# {'size':>10} {'NCCL us':>10} {'tuned us':>10} {'ratio':>6} {'tried':>5}", flush=True)
    ratios: list[float] = []
    for point in sorted(tuner.found.points, key=lambda each: each.size):
        spec, tuned_us = min(point.times_us, key=lambda each: each[1])
        other = nccl(point.size)
        ratios.append(1e6 * other.time_s / tuned_us)
        row = f"{point.size:>12} {1e6 * other.time_s:10.2f} {tuned_us:10.2f} {ratios[-1]:6.3f} {point.tried:5}"
        print(f"{row}  {spec}; NCCL: {nccl.choice(point.size)}", flush=True)
    return ratios


def _kept(keep: str | None) -> dict[str, float]:
    return json.loads(Path(keep).read_text()) if keep and Path(keep).exists() else {}


def measure(
    engine: str, ranks: int, collective: str, sizes: list[int], limit: float, tuned: str | None, within: float
) -> list[float]:
    """Prints the table for a collective on this machine; returns the ratios of the points' programs.

    `within`: the seconds for the comparison.
    """
    timer = ThreadTimer(ranks) if engine == "threads" else RankTimer(ranks)
    began = time.perf_counter()
    known = Record(tuned, fresh=False, engine=engine).points if tuned else ()
    tuner = Tuner(Goal((collective,), (ranks,), tuple(sizes), engine=engine, time_limit=limit), known)
    if not tuned:
        list(tuner.points())
    points = {point.size: point for point in tuner.found.points}
    rows = {point.size: row.spec for row in ranges(points.values(), sizes) for point in row.points}
    in_place = collective == "broadcast"
    specs = candidates(
        collective,
        ranks,
        in_place=in_place,
        instances=timer.instances,
        fifos=timer.fifos,
        protocols=timer.protocols,
    )
    print(f"# {engine}, {ranks} ranks, {collective}: tuned in {time.perf_counter() - began:.0f} s")
    print(f"# {'size':>10} {'tried':>5} {'best us':>10} {'point':>6} {'interval':>15} {'row':>6} {'interval':>15}")
    ratios: list[float] = []
    compared = time.monotonic()
    longest = 0.0
    with timer:
        for size in (sizes[number] for number in far_apart(len(sizes))):
            start = time.monotonic()
            if size not in points or start + longest - compared > within:
                why = "there is no time for it" if size in points else "the tuner has no point of it"
                print(f"{size:>12} not compared: {why}", flush=True)
                continue
            place: Place = (collective, ranks, size, in_place, 1.0)
            wanted = points[size].best[0], rows[size]
            found = _exhaustive(timer, place, specs, wanted, compared + within)
            times = {spec: statistics.median(turns) for spec, turns in found.items()}
            best = min(times, key=lambda spec: times[spec])
            told = [_ratio(found[spec], found[best]) for spec in wanted]
            ratios.append(told[0][0])
            shown = "  ".join(f"{ratio:5.3f} {low:7.3f}-{high:.3f}" for ratio, low, high in told)
            longest = max(longest, time.monotonic() - start)
            print(f"{size:>12} {points[size].tried:5} {1e6 * times[best]:10.2f} {shown}  {best}", flush=True)
    return ratios


def _exhaustive(
    timer: RankTimer | ThreadTimer, place: Place, specs: tuple[Spec, ...], wanted: tuple[Spec, Spec], deadline: float
) -> dict[Spec, list[float]]:
    """Seconds of the last turns of the tuned programs and the best of all; after the deadline there are few."""
    point = Point(timer, place, 0.005, {})
    point.start(wanted[:1])
    point.look_at(dict.fromkeys((*specs, *wanted)))
    ahead = sorted(point.looks, key=lambda spec: point.looks[spec])[:_VARIED]
    bare = [replace(spec, thresholds=()) for spec in (*ahead, *wanted)]
    point.look_at(dict.fromkeys(v for spec in bare for v in timer.variants(spec, place[2])))
    end = time.monotonic() + _RACE_S
    far = FAR * min(point.looks.values(), default=0.0)
    near = [spec for spec, took in point.looks.items() if took <= far]
    first = race(near, point.turn, goes_on=lambda: time.monotonic() < end)
    if first is None:
        raise errors.error("RankLost", "no program could be timed")
    ahead = sorted(first.seconds, key=lambda spec: first.seconds[spec])[:_LAST]
    last: dict[Spec, list[float]] = {spec: [] for spec in dict.fromkeys((*wanted, *ahead))}
    for number in range(_LAST_TURNS):
        if number >= FEWEST_ROUNDS and time.monotonic() > deadline:
            break
        if number % _TOGETHER == 0:
            timer.renew()
        for spec in random.sample(list(last), len(last)):
            last[spec].append(point.turn(spec) or math.inf)
    return last


def _ratio(times: list[float], others: list[float]) -> tuple[float, float, float]:
    """The median of the turns' ratios, and its interval."""
    found = [time / other for time, other in zip(times, others, strict=True)]
    low, high = interval(found) or (0.0, math.inf)
    return statistics.median(found), low, high


def main() -> None:
    """Compares for the collectives and machines of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=("sim", "processes", "threads"), default="sim")
    parser.add_argument("--machines", default="ndv4,ndv5,mi300x")
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--ranks", type=int, default=2, help="of a real engine")
    parser.add_argument("--collectives", default="allreduce,allgather,alltoall,reducescatter")
    parser.add_argument("--sizes", type=int, help="number of sizes  [default: 11; a real engine: 8]")
    parser.add_argument("--first", type=int, default=1024, help="the smallest size in bytes")
    parser.add_argument("--factor", type=int, default=4, help="from each size to the next")
    parser.add_argument("--nccl", action="store_true", help="compare with the simulated NCCL, not the whole space")
    parser.add_argument("--keep", metavar="FILE", help="of the exhaustive search in the simulator")
    parser.add_argument("--sample", type=int, default=0, help="programs of the exhaustive search in the simulator")
    parser.add_argument("--near", action="store_true", help="only programs like the tuned one, in the simulator")
    parser.add_argument("--time-limit", type=float, default=120, help="of the tuner on a real engine")
    parser.add_argument(
        "--within", type=float, default=math.inf, help="seconds for the comparison on a real engine, in all"
    )
    parser.add_argument(
        "--tuned", metavar="TABLE", help="the tuner's table for a real engine, with its points beside it"
    )
    given = parser.parse_args()
    count = given.sizes or (11 if given.engine == "sim" else 8)
    sizes = [given.first * given.factor**k for k in range(count)]
    ratios: list[float] = []
    for collective in given.collectives.split(","):
        if given.engine != "sim":
            of_one = given.within / len(given.collectives.split(","))
            ratios += measure(given.engine, given.ranks, collective, sizes, given.time_limit, given.tuned, of_one)
            continue
        for machine in given.machines.split(","):
            if given.nccl:
                ratios += beside_nccl(machine, given.nodes, collective, sizes)
                continue
            ratios += compare(machine, given.nodes, collective, sizes, given.keep, given.sample, near=given.near)
    if not ratios:
        sys.exit("nothing was compared: the table has no points of these sizes for this machine, or --within is short")
    worst = min(ratios) if given.nccl else max(ratios)
    print(f"median {statistics.median(ratios):.4f}, worst {worst:.4f} of {len(ratios)} points")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
