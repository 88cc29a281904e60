"""The output of gc3 synth."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import click

from gc3.runtime import scratch
from gc3.runtime.program import Program
from gc3.support.words import counted
from gc3.synth import Bound, Outcome, Point, Task

TIME_WAS_UP = "the time limit was reached: raise --time-limit to continue"


def composed_of(collective: str) -> str:
    """Returns the sentence on the form of algorithms for a collective that is reduced first and distributed then."""
    halves = ("reduce-scatter", "an all-gather") if collective == "allreduce" else ("reduction", "a distribution")
    return f"a {halves[0]}, then {halves[1]}: least and fewest refer to algorithms of this form"


def outcome_data(outcome: Outcome, bound: Bound | None) -> dict[str, Any]:
    """Returns an outcome as plain data, with its sends."""
    data: dict[str, Any] = {"status": outcome.status, "how": outcome.how, "seconds": outcome.seconds}
    made = outcome.result
    if made is not None and bound is not None:
        chunks, steps, rounds = made.cost
        data |= {
            "collective": made.collective,
            "topology": made.network.name,
            "root": made.root,
            "chunks": chunks,
            "steps": steps,
            "rounds": rounds,
            "rounds_of_steps": list(made.schedule.rounds),
            "use_of_steps": [round(part, 4) for part in made.use()],
            "fewest_rounds": outcome.fewest,
            "least_ratio_in_steps": str(bound.rounds),
            "proof": bound.proof,
            "of_compositions": outcome.composed,
            "sends": [list(map(list, sends)) for sends in made.schedule.steps],
        }
    return data


def point_data(point: Point, program: Program) -> dict[str, Any]:
    """Returns a point of a frontier as plain data."""
    return {
        "chunks": point.chunks,
        "steps": point.steps,
        "rounds": point.rounds,
        "how": point.outcome.how,
        "least_ratio_in_steps": str(point.bound),
        "proof": point.proof,
        "optimal": point.optimal,
        "latency_optimal": point.latency,
        "bandwidth_optimal": point.bandwidth,
        "scratch_share": str(scratch.share(program.described)),
        "open": [list(c) for c in point.open],
        "seconds": point.outcome.seconds,
    }


def scratch_of(program: Program) -> str:
    """Returns in words what scratch memory a program needs."""
    share = scratch.share(program.described)
    return f"scratch: {share} of S on a rank at most" if share else "scratch: none"


def show_point(point: Point, program: Program, compared: int | None) -> None:
    """Prints a point of a frontier, its bounds, its scratch memory, and the number of elements compared in a run."""
    marks = [word for word, holds in (("latency", point.latency), ("bandwidth", point.bandwidth)) if holds]
    mark = f" [{'+'.join(marks)}-optimal]" if marks else ""
    steps = counted(point.steps, "step")
    least = f"the least in {steps}" if point.optimal else f"at least {_decimal(point.bound)} in {steps}"
    undecided = f"; {len(point.open)} better ones open" if point.open else ""
    memory = f"; {scratch_of(program)}" if scratch.share(program.described) else ""
    ran = "" if compared is None else f"; ran, {counted(compared, 'element')} equal to NumPy's"
    click.echo(
        f"C={point.chunks} S={point.steps} R={point.rounds}  R/C={_decimal(point.ratio)}{mark}, {least}: {point.proof}"
        f"{undecided}{ran}{memory}  ({point.outcome.seconds:.2f} s)"
    )


def ended_because(task: Task, points: list[Point], least: int, most_steps: int) -> str:
    """Returns why a frontier has no more points."""
    if points and points[-1].bandwidth:
        return "complete: the last point is bandwidth-optimal"
    if points and points[-1].ratio <= task.any_steps_searched().rounds:
        forms = "reduce-scatter and all-gather" if task.name == "allreduce" else "reduction and distribution"
        return f"complete: no {forms} have a lower R/C"
    if task.any_steps().rounds == 0:
        return "complete: nothing has to be sent"
    if task.session.left <= 0:
        return TIME_WAS_UP
    if most_steps < least:
        return f"no algorithm has only {counted(most_steps, 'step')}: give --steps {least} or more"
    return f"ended at {counted(most_steps, 'step')}: raise --steps to continue"


def show_outcome(outcome: Outcome, bound: Bound | None, fewest_steps: int, overall: Bound, sized: Bound) -> None:
    """Prints the result, and the proof of its quality.

    Args:
        outcome: The result.
        bound: The bound of R/C in this number of steps; `overall` if none is known.
        fewest_steps: The fewest steps of any algorithm.
        overall: The bound of R/C of any algorithm in any number of steps.
        sized: The bound of R of any algorithm with these chunks.
    """
    made = outcome.result
    if made is None or bound is None:
        return
    chunks, steps, rounds = made.cost
    ratio = Fraction(rounds, chunks)
    click.secho(f"found C={chunks} S={steps} R={rounds} in {outcome.seconds:.2f} s: {outcome.how}", fg="green")
    if outcome.composed:
        click.echo(composed_of(made.collective))
    any_algorithm = "any algorithm takes " if outcome.composed else ""
    at_least = f", {any_algorithm}at least {fewest_steps}"
    click.echo(f"steps: {steps}{', the fewest' if steps <= fewest_steps else at_least}")
    fewest = f", the fewest: {outcome.fewest}" if outcome.fewest else ""
    if not fewest and bound is overall:
        least = "the fewest for these chunks" if rounds <= sized.rounds else f"any takes at least {sized.rounds}"
        fewest = f", {least}: {sized.proof}"
    click.echo(f"rounds: {rounds}{fewest}")
    least = _decimal(bound.rounds)
    if ratio == bound.rounds:
        click.echo(f"R/C = {least}, the least in {counted(steps, 'step')}: {bound.proof}")
    elif bound is overall:  # no bound is known for this number of steps
        above = float(ratio / bound.rounds) - 1
        click.echo(f"R/C = {_decimal(ratio)}, {above:.2%} above the bound: any takes at least {least}, {bound.proof}")
    else:
        click.echo(f"R/C = {_decimal(ratio)}; in {counted(steps, 'step')} at least {least}: {bound.proof}")
    if ratio == overall.rounds:
        click.echo(f"bandwidth-optimal in any number of steps: {overall.proof}")
    elif outcome.composed and bound is not overall:
        click.echo(
            f"any algorithm in any number of steps takes at least R/C = {_decimal(overall.rounds)}: {overall.proof}"
        )


def _decimal(value: Fraction) -> str:
    """A fraction as it is if it is short, else as a decimal number."""
    text = str(value)
    return text if len(text) <= 9 else f"{float(value):.7f}"  # noqa: PLR2004
