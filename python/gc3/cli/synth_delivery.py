"""What `gc3 synth` prints, keeps and runs of what it has found."""

from __future__ import annotations

import shlex
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import click

from gc3 import errors, synth
from gc3.cli import output, report, synth_files
from gc3.cli.synth_report import (
    TIME_WAS_UP,
    composed_of,
    ended_because,
    outcome_data,
    point_data,
    scratch_of,
    show_outcome,
    show_point,
)
from gc3.runtime.program import Program
from gc3.support.alarm import alarm
from gc3.support.words import counted
from gc3.synth.result import TOO_MANY_THREADBLOCKS

_SHOWN = 12  # open candidates to list, for each number of steps
_FOR_BOUNDS = 1.0  # seconds, for what is printed if nothing was found; it ends the alarm of the limit


@dataclass(frozen=True, slots=True)
class Delivery:
    """How to present and save the results."""

    again: str  # the command for another search, with the collective and the network of this one
    pipelined: bool  # whether this search is --pipelined
    spec: str  # the topology, as it is written in a command
    path: str | None  # the file or folder, if any
    run: int | None  # S of a run in bytes; None: it is not run
    compiling: dict[str, Any]  # options of the compiler
    as_json: bool  # print one JSON document


def show_open(task: synth.Task, outcome: synth.Outcome, delivery: Delivery) -> None:
    """Prints the results so far if nothing was found, and what may help."""
    known: dict[str, Any] = {"least_steps": None, "least_ratio": None, "proof": None}
    so_far = "no bound was computed in time"
    with suppress(synth.TimeUp), alarm(time.monotonic() + _FOR_BOUNDS, synth.TimeUp):
        steps, ratio = task.any_algorithm_steps(), task.any_steps()
        known = {"least_steps": steps, "least_ratio": str(ratio.rounds), "proof": ratio.proof}
        so_far = f"at least {counted(steps, 'step')}, at least R/C = {ratio.rounds}: {ratio.proof}"
    least = task.least_scratch if isinstance(task, synth.LimitedTask) else None
    if least is not None:
        known["least_scratch_share"] = str(least)
    if delivery.as_json:
        output.emit({**outcome_data(outcome, None), **known})
        return
    click.secho(f"open: {outcome.how} ({outcome.seconds:.2f} s)", fg="yellow")
    click.echo(f"so far: {so_far}")
    if least is not None:
        click.echo(f"next: --max-scratch {least}, or --pipelined with more --chunks, which are smaller")
    elif delivery.pipelined:
        click.echo("next: a larger --time-limit, or fewer --chunks")
    else:
        click.echo(f"next: {delivery.again} --pipelined, which quickly finds a schedule near the bound")


def show_too_large(collective: str, spec: str, *, as_json: bool) -> int:
    """Prints that the time limit was reached before a search could begin; returns the exit code."""
    outcome = synth.Outcome(synth.OPEN, None, "the time limit was reached before the search began", None, 0.0)
    if as_json:
        output.emit(outcome_data(outcome, None))
    else:
        click.secho(f"open: {outcome.how}", fg="yellow")
        click.echo(f"next: a larger --time-limit: {collective} on {spec} is large")
    return 1


def deliver(task: synth.Task, outcome: synth.Outcome, bound: synth.Bound | None, delivery: Delivery) -> int:
    """Prints, keeps and runs what a search has found; returns the exit code."""
    if outcome.status == synth.OPEN:
        show_open(task, outcome, delivery)
        return 1
    if outcome.result is None:
        if delivery.as_json:
            output.emit(outcome_data(outcome, bound))
        else:
            heading = "none found" if outcome.composed else "impossible"
            click.secho(f"{heading}: {outcome.how} ({outcome.seconds:.2f} s)", fg="yellow")
            click.echo("next: --steps least finds the fewest steps; without --rounds, --steps finds the fewest rounds")
        return 1
    made = outcome.result
    overall = task.any_steps()
    sized = task.of_chunks(made.chunks)
    bound = overall if bound is None else bound
    program = _compiled(made, delivery)
    program.verify()
    if delivery.path is not None:
        synth_files.write(made, delivery.path, program.save)
    compared = None if delivery.run is None else synth_files.run(made, program, delivery.run)
    if delivery.as_json:
        data = outcome_data(outcome, bound)
        data["least_rounds"] = int(sized.rounds)
        output.emit({**data, "program": program.info(), "file": delivery.path, "checked_elements": compared})
        return 0
    show_outcome(outcome, bound, task.any_algorithm_steps(), overall, sized)
    click.echo(scratch_of(program))
    click.echo(report.describe(program))
    if compared is not None:
        click.secho(f"ran, and checked {counted(compared, 'element')}: all equal to NumPy's", fg="green")
    if delivery.path is None:
        click.echo("next: -o FILE keeps it")
    else:
        file = shlex.quote(delivery.path)
        click.echo(f"written to {delivery.path}")
        click.echo(f"next: gc3 sim {file} --topology {delivery.spec}; gc3 run {file}")
        click.echo(
            "faster: COLLECTIVE:protocol=LL,instances=4, say; `gc3 synth best` tries such settings for all sizes"
        )
    return 0


def _compiled(made: synth.Result, delivery: Delivery) -> Program:
    """The program; an error says how schedules are found that need fewer threadblocks."""
    try:
        return made.program(**delivery.compiling)
    except errors.UserError as problem:
        if problem.code != TOO_MANY_THREADBLOCKS:
            raise
        other = "--hierarchical" if made.network.levels and " --hierarchical" not in delivery.again else "--for-size S"
        note = f"each peer of a rank takes a threadblock; {other} needs few peers: {delivery.again} {other}"
        raise errors.error("TooManyThreadblocks", problem.message.partition(": ")[2], notes=[note]) from None


def search_frontier(task: synth.Task, k: int, most_steps: int, delivery: Delivery, tell: output.Watch) -> int:
    """Searches for the frontier and delivers each point at once; returns the exit code."""
    begun = time.monotonic()
    least, overall = task.least_steps(), task.any_steps()
    if not delivery.as_json:
        with tell.aside():
            fewest = counted(task.any_algorithm_steps(), "step")
            click.echo(f"at least {fewest}, at least R/C = {overall.rounds}: {overall.proof}")
            if task.composed:
                click.echo(composed_of(task.name))
    points: list[synth.Point] = []
    programs: list[Program] = []
    ended = "interrupted: there may be more"
    try:
        for point in task.frontier(k, most_steps):
            points.append(point)
            programs.append(_deliver_point(point, delivery, tell))
        ended = ended_because(task, points, least, most_steps)
    except synth.TimeUp:
        ended = TIME_WAS_UP
    except errors.Gc3Error:
        ended = None
        raise
    finally:  # results found before Ctrl-C count
        if ended is not None:
            with tell.aside():
                _show_end(task, points, programs, ended, time.monotonic() - begun, delivery)
    return 0 if points or overall.rounds == 0 else 1


def _show_end(
    task: synth.Task,
    points: list[synth.Point],
    programs: list[Program],
    ended: str,
    seconds: float,
    delivery: Delivery,
) -> None:
    overall = task.any_steps()
    if delivery.as_json:
        undecided = {str(steps): [list(c) for c in found] for steps, found in task.undecided.items()}
        about = {"least_steps": task.any_algorithm_steps(), "least_ratio": str(overall.rounds), "proof": overall.proof}
        found = [point_data(*each) for each in zip(points, programs, strict=False)]  # the last may not be compiled
        output.emit({"ended": ended, "seconds": seconds, **about, "open": undecided, "points": found})
        return
    for steps, found in task.undecided.items():
        shown = ", ".join(f"(C={c}, R={r})" for c, r in found[:_SHOWN])
        click.echo(f"open in {counted(steps, 'step')}: {shown}{', ...' if len(found) > _SHOWN else ''}")
    click.echo(f"{ended} ({seconds:.2f} s)")
    if points:
        last = points[-1]
        if delivery.path is None:
            numbers = f"--chunks {last.chunks} --steps {last.steps} --rounds {last.rounds}"
            click.echo(f"next: {delivery.again} {numbers} -o FILE")
        else:
            click.echo(f"written to {delivery.path}: {counted(len(points), 'program')}")
            file = shlex.quote(str(synth_files.file_of(last, delivery.path)))
            click.echo(f"next: gc3 sim {file} --topology {delivery.spec}; gc3 run {file}")


def _deliver_point(point: synth.Point, delivery: Delivery, tell: output.Watch) -> Program:
    compared = None
    assert point.outcome.result is not None  # noqa: S101 - points are found
    made = point.outcome.result
    program = _compiled(made, delivery)
    program.verify()
    if delivery.path is not None:
        synth_files.write(made, str(synth_files.file_of(point, delivery.path)), program.save)
    if delivery.run is not None:
        with tell.aside():
            compared = synth_files.run(made, program, delivery.run)
    if not delivery.as_json:
        with tell.aside():
            show_point(point, program, compared)
    return program
