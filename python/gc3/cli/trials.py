"""Which settings make an algorithm faster on a machine: those that a command line leaves open, and advice."""

from __future__ import annotations

from dataclasses import dataclass, replace
from threading import Lock
from typing import TYPE_CHECKING

import click

from gc3 import datatypes, errors, topologies
from gc3.cli import target, variants
from gc3.cli.options import ENGINES
from gc3.cli.output import working
from gc3.cli.sizes import format_size
from gc3.comm.spec import Spec
from gc3.report.advice import Trial
from gc3.runtime import measure
from gc3.runtime.program import verify
from gc3.sim import Platform, Simulation, presets
from gc3.sim.sweep import MOST_RECORDED
from gc3.tune import One, Search, choose, simplest
from gc3.tune.space import on_nodes, orders_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gc3.cli.options import Asked, Engine
    from gc3.runtime.program import Program

_MOST_TRIED = 200_000  # instructions of a program that is compiled in other ways, too
_MOST_OF_A_WAY = 400_000
_SIMULATIONS = 24  # of a size
_GAIN = 1.25  # of an engine of this machine, since the rates of its preset may be those of another one
_DIVIDING = ("channels", "chunks", "parallel")


@dataclass(frozen=True, slots=True)
class Way:
    """A program compiled with some settings."""

    label: str  # the settings
    asked: Asked  # the program with them
    program: Program  # it, compiled
    time_s: float  # predicted seconds at one size


def chosen(asked: Asked, program: Program, on: Platform, sizes: Sequence[int]) -> dict[int, Way | None]:
    """Returns the fastest way for each size, proven unless the command line says otherwise; None: none was tried."""
    found: dict[int, Way | None] = dict.fromkeys(sizes)
    made: dict[Spec, Program] = {}
    search = _search(asked, program, on)
    if search is None:
        return found
    with working(f"choosing settings of {asked.text}"):
        for size, tried, _ in choose(search, sizes):
            if tried:
                spec, took = simplest(tried)
                made[spec] = made.get(spec) or search.program(spec, program.in_place)
                found[size] = Way(_label(spec), _with(asked, spec), made[spec], took)
    if asked.how.prove:
        with working("proving"):
            for each in made.values():
                verify(each)
    return found


def settled(
    asked: Asked, program: Program, on: Platform, size: int, *, gain: float = 1.0
) -> tuple[Asked, Program, str]:
    """Returns what to take where a command line leaves the settings open, and what is told of it: "" if it does not.

    `gain`: how many times as fast as the plain form other settings must be predicted.
    """
    if not leaves_open(asked):
        return asked, program, ""
    (way,) = chosen(asked, program, on, [size]).values()
    at = f"settings chosen for {format_size(size)} by simulation"
    if way is None or (gain > 1 and Simulation(program, on).run(size).time_s < gain * way.time_s):
        plain = "" if way is None else f"{at}: the plain ones, since no others are predicted to be {gain} times as fast"
        return asked, program, plain
    return way.asked, way.program, f"{at}: {way.label}; the plain form is {asked.with_settings('instances=1')}"


def settled_here(asked: Asked, program: Callable[[], Program], engine: Engine, size: int) -> tuple[Asked, str]:
    """Returns the same for an engine of this machine; `program` makes the plain form."""
    if not leaves_open(asked):
        return asked, ""
    if engine.name not in ENGINES:
        return asked, f"the plain form: no preset predicts --engine {engine.name} here, so name other settings yourself"
    plain = program()
    rates = presets.kept(engine.name) or replace(presets.get(f"cpu-{engine.name}"), cores=measure.cores())
    on = Platform(topologies.load("cpu", R=plain.ranks), rates)
    settings, _, told = settled(asked, plain, on, size, gain=_GAIN)
    return settings, told


def leaves_open(asked: Asked) -> bool:
    """Returns whether a command line leaves the settings of an algorithm to gc3: names none of them."""
    how = asked.how
    named = how.protocol is not None or how.instances is not None or any(key in how.parameters for key in _DIVIDING)
    return not named and not target.is_program(asked.name) and not target.is_script(asked.name)


def trials(asked: Asked, program: Program, on: Platform, size: int) -> list[Trial]:
    """Returns the program compiled in other ways, as far as that is quick and possible, with its predicted times."""
    search = _search(asked, program, on)
    own = f"protocol={program.protocol},instances={program.described.instances}"
    tried = search.fastest(size)[0] if search else ()
    return [Trial(_label(spec), took) for spec, took in tried if _label(spec) != own]


def _search(asked: Asked, program: Program, on: Platform) -> Search | None:
    """The ways to compile an algorithm: protocols, instances and the like, nodes and NICs; None: they are not tried."""
    core = program.described
    given = target.is_program(asked.name) or target.is_script(asked.name)
    # With other settings each rank may need steps of its own.
    instructions = program.info()["instructions"]
    if given or instructions > _MOST_TRIED or core.collective.tensors:
        return None
    most = _MOST_OF_A_WAY * core.instances / max(instructions, 1)  # instances
    values = {**{p.name: p.default for p in target.algorithm(asked.name).parameters}, **asked.how.parameters}
    asked = variants.limited(asked, on)
    alone = Lock()  # standard output is one for all threads, and what an algorithm prints goes elsewhere

    def compiled(spec: Spec) -> Program:
        if spec.instances > most:
            raise errors.error("BadArgument", f"{spec} is too large to be tried")
        try:
            with alone:
                return variants.exactly(_with(asked, spec), on.topology)
        except click.UsageError as problem:  # of parameters that do not suit the algorithm
            raise errors.error("BadArgument", problem.message) from problem

    settings = {name: value for name, value in values.items() if name in _DIVIDING and value is not None}
    threadblocks = asked.how.max_threadblocks or 0
    plain = Spec(asked.name, (), threadblocks=threadblocks)
    placed = on_nodes(target.algorithm(asked.name), on.topology, program.ranks)
    placed = () if {"G", "rails"} & set(asked.how.parameters) else placed
    collective = program.collective.name
    orders = [()] if asked.how.order else orders_of(collective, on.topology)
    shapes = [replace(plain, parameters=told, order=order) for told in dict.fromkeys(((), placed)) for order in orders]
    return Search(
        collective,
        on,
        program.ranks,
        in_place=program.in_place,
        given=[plain],
        threadblocks=threadblocks,
        most=_SIMULATIONS,
        protocols=[p for p in datatypes.FORMATS if p in on.parameters.protocols],
        one=One(shapes, settings, compiled, MOST_RECORDED),
    )


def _with(asked: Asked, spec: Spec) -> Asked:
    given = {**asked.how.parameters, **dict(spec.parameters)}
    asked = replace(asked, text=asked.with_settings(_label(spec)))
    order = spec.order or asked.how.order
    return asked.changed(protocol=spec.protocol, instances=spec.instances, parameters=given, order=order)


def _label(spec: Spec) -> str:
    settings = {"protocol": spec.protocol, "instances": spec.instances, **dict(spec.parameters)}
    if "rails" in settings:
        settings.pop("G", None)  # that of the machine, which `variants.fitting` gives
    settings |= {"order": "+".join(map(str, spec.order))} if spec.order else {}
    return ",".join(f"{key}={value}" for key, value in settings.items())
