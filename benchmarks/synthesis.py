"""Synthesis beside the plain SMT encoding of 001 section 3.4 with z3, in one process on one core.

    .venv/bin/python benchmarks/synthesis.py [--z3-seconds 20] [--no-z3] [--scale | --large]

Times of GC3 are medians of three, of an instance from its bandwidth relation to a checked schedule and the proof that
there are no fewer rounds; nothing is kept from one row to the next but the child process with the solvers, which is
started before. z3 is given the same instance once, and no proof is asked of it.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import statistics
import time
from collections.abc import Callable

import plain_encoding
import synthesis_instances as instances

from gc3 import sim, topologies
from gc3.synth import IMPOSSIBLE, Network, Outcome, Session, Solvers, Task

_REPEATS = 3
_PATIENCE = 30.0


def fresh(network: Network) -> Network:
    """Returns a copy without computed values."""
    return Network(network.name, network.ranks, network.edges, network.bounds, network.nodes)


def timed(run: Callable[[], Outcome]) -> tuple[float, Outcome]:
    """Returns the median time of a few runs, and the last outcome."""
    seconds: list[float] = []
    for _ in range(_REPEATS):
        begun = time.perf_counter()
        outcome = run()
        seconds.append(time.perf_counter() - begun)
    return statistics.median(seconds), outcome


def solve(solvers: Solvers, network: Network, row: instances.Row) -> Outcome:
    """Decides a row from scratch."""
    name, chunks, steps, rounds = row
    session = Session(fresh(network), solvers, time.monotonic() + _PATIENCE)
    return Task(session, name, root_of(row)).solve(chunks, steps, rounds)


def by_z3(solvers: Solvers, network: Network, row: instances.Row, most_s: float) -> tuple[float, str]:
    """Returns the seconds of the plain encoding for a row, and those as text: more if it was stopped."""
    wanted = Task(Session(network, solvers), row[0], root_of(row)).parts(row[1])[0][1]
    begun = time.perf_counter()
    answer, _ = plain_encoding.solve(network, wanted, row[2], row[3], most_s, least=1)
    took = time.perf_counter() - begun
    return took, f"{'>' if answer == 'unknown' else ''}{took:.3f}"


def root_of(row: instances.Row) -> int:
    """Returns the root with which a row is solved."""
    return instances.ROOT if row[0] in instances.ROOTED else 0


def tables(solvers: Solvers, z3_seconds: float) -> None:
    """Prints all rows of tables 4 and 5."""
    print(f"{'instance':34s} {'gc3 s':>8s} {'z3 s':>8s} {'ratio':>8s}  how; fewest rounds by")
    ours: list[float] = []
    plain: list[tuple[float, float]] = []
    for network, row in instances.tables():
        seconds, outcome = timed(lambda network=network, row=row: solve(solvers, network, row))
        ours.append(seconds)
        label = f"{network.name} {row[0]} ({row[1]}, {row[2]}, {row[3]})"
        rate, mark = "", ""
        if z3_seconds and row[0] not in instances.COMPOSED:
            took, mark = by_z3(solvers, network, row, z3_seconds)
            plain.append((took, seconds))
            rate = f"{took / seconds:.0f}"
        how = outcome.how if outcome.result is not None else f"{outcome.status}: {outcome.how}"
        print(f"{label:34s} {seconds:8.4f} {mark:>8s} {rate:>8s}  {how}; {outcome.fewest or '(6, 3, 3) has fewer'}")
    print(f"all {len(ours)} rows: {sum(ours):.3f} s, the slowest {max(ours):.3f} s")
    if plain:
        mean = math.exp(statistics.fmean(math.log(z / g) for z, g in plain))
        print(f"z3, {len(plain)} rows that do not combine: {sum(z for z, _ in plain):.1f} s; geometric mean {mean:.0f}")
    print()


def impossible(solvers: Solvers, z3_seconds: float) -> None:
    """Prints instances that have no schedule."""
    print(f"{'no schedule':34s} {'gc3 s':>8s} {'z3 s':>8s}  proof")
    for network, row in instances.impossible():
        seconds, outcome = timed(lambda network=network, row=row: solve(solvers, network, row))
        mark = by_z3(solvers, network, row, min(z3_seconds, 1.0))[1] if z3_seconds else ""
        proof = outcome.how if outcome.status == IMPOSSIBLE else f"NOT PROVEN: {outcome.status}"
        print(f"{network.name} {row[0]} {row[1:]!s:22s} {seconds:8.4f} {mark:>8s}  {proof}")
    print()


def frontiers(solvers: Solvers) -> None:
    """Prints the frontiers of the DGX-1, with the time for all of their points and proofs."""
    for network, name, root, k, most in instances.frontiers():
        begun = time.perf_counter()
        task = Task(Session(fresh(network), solvers, time.monotonic() + _PATIENCE), name, root)
        points = list(task.frontier(k, most))
        seconds = time.perf_counter() - begun
        shown = " ".join(f"({p.chunks}, {p.steps}, {p.rounds}){'' if p.optimal else '?'}" for p in points)
        print(f"frontier {network.name} {name} k={k} to {most} steps: {seconds:.3f} s: {shown}")
    print()


def scale(solvers: Solvers) -> None:
    """Prints larger instances: the schedule, the time to find it, the time to prove it the best."""
    print(f"{'instance':46s} {'found s':>8s} {'proof s':>8s}  how; fewest rounds by")
    for network, (name, chunks, steps, rounds) in instances.scale():
        session = Session(fresh(network), solvers, time.monotonic() + _PATIENCE)
        task = Task(session, name)
        begun = time.perf_counter()
        outcome = task.solve(chunks, steps, rounds, prove=False)
        found = time.perf_counter() - begun
        proof: str | None = None
        if outcome.result is not None:
            proof = session.fewest_rounds(task.parts(chunks)[0][1], steps, rounds)
        proven = time.perf_counter() - begun - found
        least = " fewest steps" if steps == task.least_steps() else ""
        label = f"{network.name} {name} ({chunks}, {steps}, {rounds})"
        print(
            f"{label:46s} {found:8.3f} {proven:8.3f}  {outcome.status}: {outcome.how}; {proof or 'not proven'}{least}",
            flush=True,
        )


def large(solvers: Solvers) -> None:
    """Prints the largest: seconds to a proven program, and how far above the maximum-flow bound it is simulated.

    Simulated by slots, at line rate and with software that takes no time, as the bound has it: slots see how transfers
    inside nodes and between them overlap, which the alpha-beta cost of a program does not.
    """
    print(f"{'instance':44s} {'found s':>8s} {'program s':>9s} {'R/C over':>9s} {'simulated over bound':>21s}")
    for spec, unit, name, chunks, size in instances.large():
        begun = time.perf_counter()
        topology = topologies.load(spec)
        network = Network.of(topology, None if unit is None else unit * 1e9)
        task = Task(Session(network, solvers, time.monotonic() + 2 * _PATIENCE), name)
        if network.nodes:
            outcome = task.pipelined(chunks)
        else:
            steps = task.least_steps()
            least = max(math.ceil(task.any_steps().rounds * chunks), steps)
            outcome = task.solve(chunks, steps, least, prove=False)
        found = time.perf_counter() - begun
        if outcome.result is None:
            print(f"{spec} {name}: {outcome.status}: {outcome.how}")
            continue
        program = outcome.result.program()
        program.verify()
        made = time.perf_counter() - begun
        _, steps, rounds = outcome.result.cost
        bound = float(task.any_steps().rounds)
        classes = tuple(
            dataclasses.replace(c, kernel_efficiency=1.0, dma_efficiency=1.0, message_s=0.0) for c in topology.classes
        )
        machine = sim.platform(dataclasses.replace(topology, classes=classes), "ideal")
        predicted = sim.Simulation(program, machine).run(size)
        unit_rate = min(c.bandwidth_bytes_per_s or math.inf for c in classes) if unit is None else unit * 1e9
        buffer = predicted.size / network.ranks if name == "allgather" else predicted.size  # L is the input
        over = predicted.time_s / (bound * buffer / unit_rate) - 1
        label = f"{network.name} {network.ranks} {name} ({chunks}, {steps}, {rounds})"
        print(f"{label:44s} {found:8.2f} {made:9.2f} {rounds / chunks / bound - 1:9.2%} {over:21.2%}", flush=True)


def main() -> None:
    """Runs the requested parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--z3-seconds", type=float, default=20.0, help="most seconds that z3 gets for a row")
    parser.add_argument("--no-z3", action="store_true", help="GC3 alone")
    parser.add_argument("--scale", action="store_true", help="only the instances of 16 to 64 ranks")
    parser.add_argument("--large", action="store_true", help="only those of 64 GPUs and 256 ranks, with simulation")
    given = parser.parse_args()
    with Solvers() as solvers:
        solvers.warm_up()
        if given.scale or given.large:
            (scale if given.scale else large)(solvers)
            return
        z3_seconds = 0.0 if given.no_z3 else given.z3_seconds
        tables(solvers, z3_seconds)
        impossible(solvers, z3_seconds)
        frontiers(solvers)


if __name__ == "__main__":
    main()
