"""What would make a program faster on a machine: changes that have been simulated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import click

from gc3 import datatypes, errors
from gc3.cli import target, variants
from gc3.report.advice import Trial
from gc3.report.svg import time_text
from gc3.sim import Simulation
from gc3.sim.sweep import MOST_RECORDED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gc3.cli.options import Asked
    from gc3.runtime.program import Program
    from gc3.sim import Platform

_MOST_TRIED = 50_000  # instructions of a program that is compiled in other ways, too
_TIMES = (1, 2, 4, 8)
_DIVIDING = ("channels", "chunks")
_MOST = 3  # lines of advice
_SAME = 1.005
_GAIN = 0.98  # of the time: what gains less is not advised


def trials(asked: Asked, program: Program, on: Platform, size: int) -> list[Trial]:
    """Returns the program compiled in other ways, as far as that is quick and possible, with its predicted times.

    First other protocols and more instances; then, with the best of these, more channels and chunks if it has such
    parameters.
    """
    name, how = asked.name, asked.how
    if target.is_program(name) or target.is_script(name) or program.core.instruction_count > _MOST_TRIED:
        return []
    instances = program.core.instances
    found: list[Trial] = []

    def look(label: str, protocol: str, number: int, given: dict[str, int]) -> None:
        changed = asked.changed(protocol=protocol, instances=number, parameters={**how.parameters, **given})
        try:
            other = variants.compiled(variants.limited(changed, on), on.topology)
            simulation = Simulation(other, on)
            if simulation.work(size) <= MOST_RECORDED:
                found.append(Trial(label, simulation.run(size).time_s))
        except (errors.Gc3Error, click.UsageError):
            return  # for example, more threadblocks than the GPU holds

    ways = [(p, n * instances) for n in _TIMES for p in datatypes.FORMATS if p in on.parameters.protocols]
    labels = {f"protocol={p},instances={n}": (p, n) for p, n in ways if (p, n) != (program.protocol, instances)}
    for label, (protocol, number) in labels.items():
        look(label, protocol, number, {})
    best = min(found, key=lambda trial: trial.time_s, default=None)
    protocol, number = (program.protocol, instances) if best is None else labels[best.label]
    for parameter, value in _more(name, how.parameters):
        look(f"protocol={protocol},instances={number},{parameter}={value}", protocol, number, {parameter: value})
    return found


def _more(name: str, given: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """Larger values of the parameters that divide the work."""
    for parameter in target.algorithm(name).parameters:
        now = given.get(parameter.name, parameter.default)
        if parameter.name in _DIVIDING and now is not None:
            yield from ((parameter.name, now * times) for times in _TIMES[1:])


def lines(time_s: float, tried: Sequence[Trial]) -> list[str]:
    """Returns what to change and what it would bring, at most three lines; each has been simulated.

    Of changes with the same time it takes the first, which is the simplest.
    """
    found: list[Trial] = []
    for each in sorted(tried, key=lambda t: t.time_s):
        if each.time_s < _GAIN * time_s and all(_SAME * other.time_s < each.time_s for other in found):
            found.append(each)
    return [f"{t.label}: {time_text(t.time_s)} predicted, {100 * (t.time_s / time_s - 1):.0f}%" for t in found[:_MOST]]
