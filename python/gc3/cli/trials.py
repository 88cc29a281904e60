"""What would make a program faster on a machine: changes that have been simulated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

import click

from gc3 import datatypes, errors
from gc3.cli import target, variants
from gc3.cli.output import working
from gc3.report.advice import Trial
from gc3.report.svg import time_text
from gc3.runtime.program import verify
from gc3.sim import Simulation
from gc3.sim.sweep import MOST_RECORDED
from gc3.support.sizes import format_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gc3.cli.options import Asked
    from gc3.runtime.program import Program
    from gc3.sim import Platform

_MOST_TRIED = 200_000  # instructions of a program that is compiled in other ways, too
_MOST_OF_A_WAY = 400_000
_INSTANCES = (1, 2, 4, 8, 16, 24)
_TIMES = (2, 4, 8)  # of what divides the work
_DIVIDING = ("channels", "chunks")
_MOST = 3  # lines of advice
_SAME = 1.005
_GAIN = 0.98  # of the time: what gains less is not advised


@dataclass(frozen=True, slots=True)
class Way:
    """A program compiled with some settings.

    Attributes:
        label: The settings.
        asked: The program with them.
        program: It, compiled.
        time_s: Predicted seconds at one size.
    """

    label: str
    asked: Asked
    program: Program
    time_s: float


def chosen(asked: Asked, program: Program, on: Platform, sizes: Sequence[int]) -> dict[int, Way | None]:
    """Returns the fastest way for each size, proven unless the command line says otherwise; None: none was tried."""
    ways, found = Ways(asked, program, on), dict[int, Way | None]()
    for size in sizes:
        with working(f"choosing settings of {asked.text} for {format_size(size)}"):
            found[size] = ways.best(size)
    if asked.how.prove:
        with working("proving"):
            for way in {way.label: way for way in found.values() if way is not None}.values():
                verify(way.program)
    return found


def leaves_open(asked: Asked) -> bool:
    """Returns whether a command line leaves the settings of an algorithm to gc3: names none of them."""
    how = asked.how
    named = how.protocol is not None or how.instances is not None or any(key in how.parameters for key in _DIVIDING)
    return not named and not target.is_program(asked.name) and not target.is_script(asked.name)


class Ways:
    """The ways to compile an algorithm for a machine: protocols and instances, then with these channels and chunks."""

    def __init__(self, asked: Asked, program: Program, on: Platform) -> None:
        """Compiles nothing yet; `program`: as it is asked for."""
        self._asked, self._on = asked, on
        core = program.core
        self._first, count = core.instances, max(core.instruction_count, 1)
        self._most = _MOST_OF_A_WAY // count if count <= _MOST_TRIED else 0
        self._made: dict[str, tuple[Asked, Program, Simulation] | None] = {}

    def at(self, size: int) -> list[Way]:
        """Returns the ways with their times, as far as they are possible and quick to simulate."""
        name, how = self._asked.name, self._asked.how
        if target.is_program(name) or target.is_script(name):
            return []
        protocols = [p for p in datatypes.FORMATS if p in self._on.parameters.protocols]
        found: list[Way] = []
        for n, protocol in product(_INSTANCES, protocols):
            if n <= self._most:
                found += self._way(size, {"protocol": protocol, "instances": n * self._first})
        best = {
            p: min((w for w in found if w.asked.how.protocol == p), key=lambda way: way.time_s, default=None)
            for p in protocols
        }
        for way in (way for way in best.values() if way is not None):
            for parameter, value in _more(name, how.parameters):
                settings = {"protocol": way.asked.how.protocol, "instances": way.asked.how.instances}
                found += self._way(size, {**settings, parameter: value})
        return found

    def best(self, size: int) -> Way | None:
        """Returns the fastest way, of equals the first, which is the simplest; None: there is none."""
        best: Way | None = None
        for way in self.at(size):
            if best is None or _SAME * way.time_s < best.time_s:
                best = way
        return best

    def _way(self, size: int, settings: dict[str, Any]) -> Iterator[Way]:
        label = ",".join(f"{key}={value}" for key, value in settings.items())
        if label not in self._made:
            self._made[label] = self._compiled(label, settings)
        made = self._made[label]
        if made is not None and made[2].work(size) <= MOST_RECORDED:
            yield Way(label, made[0], made[1], made[2].run(size).time_s)

    def _compiled(self, label: str, settings: dict[str, Any]) -> tuple[Asked, Program, Simulation] | None:
        given = {**self._asked.how.parameters, **{k: v for k, v in settings.items() if k in _DIVIDING}}
        asked = self._asked.changed(protocol=settings["protocol"], instances=settings["instances"], parameters=given)
        asked = replace(asked, text=self._asked.with_settings(label))
        try:
            program = variants.compiled(variants.limited(asked, self._on), self._on.topology)
            simulation = Simulation(program, self._on)
            simulation.check_resident()
        except (errors.Gc3Error, click.UsageError):
            return None  # for example, more threadblocks than the GPU holds
        return asked, program, simulation


def trials(asked: Asked, program: Program, on: Platform, size: int) -> list[Trial]:
    """Returns the program compiled in other ways, as far as that is quick and possible, with its predicted times."""
    own = f"protocol={program.protocol},instances={program.core.instances}"
    return [Trial(way.label, way.time_s) for way in Ways(asked, program, on).at(size) if way.label != own]


def _more(name: str, given: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """Larger values of the parameters that divide the work."""
    for parameter in target.algorithm(name).parameters:
        now = given.get(parameter.name, parameter.default)
        if parameter.name in _DIVIDING and now is not None:
            yield from ((parameter.name, now * times) for times in _TIMES)


def lines(time_s: float, tried: Sequence[Trial]) -> list[str]:
    """Returns what to change and what it would bring, at most three lines; each has been simulated.

    Of changes with the same time it takes the first, which is the simplest.
    """
    found: list[Trial] = []
    for each in sorted(tried, key=lambda t: t.time_s):
        if each.time_s < _GAIN * time_s and all(_SAME * other.time_s < each.time_s for other in found):
            found.append(each)
    return [f"{t.label}: {time_text(t.time_s)} predicted, {100 * (t.time_s / time_s - 1):.0f}%" for t in found[:_MOST]]
