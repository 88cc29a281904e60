"""gc3 synth --hierarchical on machines so large that one rank stands for all."""

from __future__ import annotations

import math
import shlex
import time
from fractions import Fraction
from typing import Any

import click

from gc3 import errors, synth
from gc3.cli import output, report
from gc3.cli.synth_report import scratch_of
from gc3.runtime.program import Program
from gc3.synth.bounds.by_ports import port_bound
from gc3.synth.problem.demand import check_chunks, least_chunks
from gc3.synth.result import TOO_MANY_THREADBLOCKS
from gc3.topologies import Topology

_SLACK = 1e-9  # of a bound in floating point


def find(
    topology: Topology, collective: str, chunks: int | None, unit: float | None, compiling: dict[str, Any]
) -> tuple[synth.OneRankResult, Program, float]:
    """Returns the schedule of the fewest steps whose program the machine holds, the program, and the seconds.

    Raises:
        gc3.UserError: The nodes are not alike, or none fits.
    """
    begun = time.monotonic()
    least = least_chunks(collective, topology.rank_count)
    if chunks is not None:
        check_chunks(collective, topology.rank_count, chunks)
    problem: errors.UserError | None = None
    for made in synth.one_rank_schedules(topology, collective, (chunks or least) // least, unit=unit):
        if not 0 < compiling["max_threadblocks"] < made.peers:
            try:
                return made, made.program(**compiling), time.monotonic() - begun
            except errors.UserError as why:
                problem = why
                if why.code != TOO_MANY_THREADBLOCKS:
                    raise
    raise problem or errors.error(
        "TooManyThreadblocks", f"{collective} on '{topology.name}' needs a threadblock for each peer of a rank"
    )


def show(
    topology: Topology,
    made: synth.OneRankResult,
    program: Program,
    seconds: float,
    unit: float | None,
    path: str | None,
    spec: str,
    *,
    as_json: bool,
) -> int:
    """Writes and prints what was found; returns the exit code."""
    if path is not None:
        program.save(path)
    chunks, steps, rounds = made.cost
    per_round = unit or made.machine.unit
    bound = port_bound(topology, made.collective, 0, lambda part: topology.bandwidth(part) / per_round)
    size = topology.rank_count * chunks if made.collective == "allgather" else chunks  # S
    ratio = bound.least * size / chunks
    least = math.ceil(bound.least * size * (1 - _SLACK))
    if as_json:
        data = {
            "status": synth.FOUND,
            "how": made.how,
            "seconds": seconds,
            "collective": made.collective,
            "topology": topology.name,
            "chunks": chunks,
            "steps": steps,
            "rounds": rounds,
            "rounds_of_steps": list(made.rounds),
            "least_rounds": least,
            "least_ratio": ratio,
            "proof": bound.proof,
            "program": program.info(),
            "file": path,
        }
        output.emit(data)
        return 0
    click.secho(f"found C={chunks} S={steps} R={rounds} in {seconds:.2f} s: {made.how}", fg="green")
    click.echo(f"rounds: {rounds}, {f'any takes at least {least}' if least < rounds else 'the fewest'}: {bound.proof}")
    click.echo(f"R/C = {float(Fraction(rounds, chunks)):.7g}; any takes at least {ratio:.7g}, by the ports alone")
    click.echo(scratch_of(program))
    click.echo(report.describe(program))
    if path is None:
        click.echo("next: -o FILE keeps it")
    else:
        click.echo(f"written to {path}\nnext: gc3 sim {shlex.quote(path)} --topology {spec}")
    return 0
