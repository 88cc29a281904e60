"""The encoding of 001 section 3.4 with z3, as the paper writes it: what synthesis is tested and timed against."""

from __future__ import annotations

from typing import Any

import z3  # type: ignore[import-untyped]

from gc3.synth import Demand, Network, Schedule


def solve(network: Network, demand: Demand, steps: int, rounds: int, seconds: float) -> tuple[str, Schedule | None]:
    """Returns "sat" with a schedule, "unsat", or "unknown" after so many seconds (C1 to C6 of the paper)."""
    solver: Any = z3.Solver()
    solver.set("timeout", max(int(seconds * 1000), 1))
    chunks = range(demand.chunk_count)
    time = {(c, n): z3.Int(f"time_{c}_{n}") for c in chunks for n in range(network.ranks)}
    sends = {(c, e): z3.Bool(f"snd_{c}_{e}") for c in chunks for e in range(len(network.edges))}
    count = [z3.Int(f"r_{s}") for s in range(steps)]
    for c in chunks:
        piece = demand.pieces[demand.piece_of[c]]
        for n in range(network.ranks):
            solver.add(time[c, n] >= 0)
            if n == piece.source:
                solver.add(time[c, n] == 0)  # C1
                continue
            solver.add(time[c, n] >= 1)
            if n in piece.targets:
                solver.add(time[c, n] <= steps)  # C2
            arrivals = [(sends[c, e], 1) for e in network.incoming[n]]
            once = z3.PbEq(arrivals, 1) if arrivals else z3.BoolVal(False)
            solver.add(z3.Implies(time[c, n] <= steps, once))  # C3
        for e, (u, v) in enumerate(network.edges):
            solver.add(z3.Implies(sends[c, e], time[c, u] < time[c, v]))  # C4
    for members, bound in network.bounds:
        for s in range(1, steps + 1):
            used = [
                z3.If(z3.And(sends[c, e], time[c, network.edges[e][1]] == s), 1, 0) for c in chunks for e in members
            ]
            solver.add(z3.Sum(used) <= bound * count[s - 1])  # C5
    solver.add(*(r >= 0 for r in count), z3.Sum(count) == rounds)  # C6
    answer = str(solver.check())
    if answer != "sat":
        return answer, None
    model = solver.model()
    found = [
        (model.eval(time[c, network.edges[e][1]]).as_long() - 1, (c, *network.edges[e]))
        for (c, e), send in sends.items()
        if z3.is_true(model.eval(send)) and model.eval(time[c, network.edges[e][1]]).as_long() <= steps
    ]
    return answer, Schedule.of([model.eval(r).as_long() for r in count], found)
