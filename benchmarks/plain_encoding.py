"""The encoding of 001 section 3.4 with z3, as in the paper: the reference for tests and times of synthesis."""

from __future__ import annotations

from typing import Any

import z3  # type: ignore[import-untyped]

from gc3.synth import Demand, Network, Schedule


def solve(
    network: Network, demand: Demand, steps: int, rounds: int, seconds: float, *, least: int = 0
) -> tuple[str, Schedule | None]:
    """Decides an instance by C1 to C6 of the paper; bounds are pseudo-Boolean constraints for each number of rounds.

    Args:
        network: The network.
        demand: What is asked for.
        steps: S.
        rounds: R.
        seconds: How long z3 may take.
        least: Every step has so many rounds at least; one makes it easier for z3.

    Returns:
        "sat" with a schedule, "unsat", or "unknown" if the time limit was reached.
    """
    solver: Any = z3.Solver()
    solver.set("timeout", max(int(seconds * 1000), 1))
    chunks = range(demand.chunk_count)
    time = {(c, n): z3.Int(f"time_{c}_{n}") for c in chunks for n in range(network.ranks)}
    sends = {(c, e): z3.Bool(f"snd_{c}_{e}") for c in chunks for e in range(len(network.edges))}
    count = [z3.Int(f"r_{s}") for s in range(steps)]
    for c in chunks:
        piece = demand.pieces[demand.piece_of[c]]
        for n in range(network.ranks):
            if n == piece.source:
                solver.add(time[c, n] == 0)  # C1
                continue
            solver.add(time[c, n] >= 1)
            arrivals = [(sends[c, e], 1) for e in network.incoming[n]]
            once = z3.PbEq(arrivals, 1) if arrivals else z3.BoolVal(False)
            if n in piece.targets:
                solver.add(time[c, n] <= steps, once)  # C2, C3
            else:
                solver.add(z3.Implies(time[c, n] <= steps, once))  # C3
        for e, (u, v) in enumerate(network.edges):
            solver.add(z3.Implies(sends[c, e], time[c, u] < time[c, v]))  # C4
    most = rounds - (steps - 1) * least
    for members, bound in network.bounds:
        for s in range(1, steps + 1):
            used = [(z3.And(sends[c, e], time[c, network.edges[e][1]] == s), 1) for c in chunks for e in members]
            for k in range(least, most + 1):
                fits = z3.PbLe(used, bound * k)
                solver.add(fits if least == most else z3.Implies(count[s - 1] == k, fits))  # C5
    solver.add(*(r >= least for r in count), *(r <= most for r in count), z3.Sum(count) == rounds)  # C6
    answer = str(solver.check())
    if answer != "sat":
        return answer, None
    model = solver.model()
    found = [
        (model.eval(time[c, network.edges[e][1]]).as_long() - 1, (c, *network.edges[e]))
        for (c, e), send in sends.items()
        if z3.is_true(model.eval(send)) and model.eval(time[c, network.edges[e][1]]).as_long() <= steps
    ]
    return answer, Schedule.of([model.eval(r, model_completion=True).as_long() for r in count], found)
