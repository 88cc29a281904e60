"""The fastest program at a size by few simulations: probes over a wide range, then descents from the best ones.

A *shape* is an algorithm with the parameters that decide what it sends where: the root, the order of ranks, or how they
are divided into nodes. Its *settings* only divide the same work: instances, channels, chunks, the protocol, FIFOs.
Shapes are probed with a few settings that differ widely. From the best of each shape and protocol, a descent changes
one setting at a time, or raises one and lowers another. A program is not simulated if its time must be above the best:
it takes about as long as a smaller call or longer, and longer than its busiest link.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, product
from typing import TYPE_CHECKING, TypeAlias

from gc3 import errors
from gc3._core import is_symmetric
from gc3.algorithms import catalogue, load
from gc3.comm.selection import Spec
from gc3.datatypes import FORMATS
from gc3.lang import Algorithm
from gc3.runtime.program import dialect_of
from gc3.runtime.scratch import ScratchLimit
from gc3.sim import Simulation
from gc3.sim.nccl.graphs import nics
from gc3.topologies.ring_order import ring_order
from gc3.tune.space import divisions
from gc3.tune.uneven import uneven

if TYPE_CHECKING:
    from gc3.sim import Platform

Parameters: TypeAlias = tuple[tuple[str, int | str], ...]

MOST = 120  # simulations of a size
VALUES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)  # of instances, and of parameters that divide the work
_DIVIDING = ("channels", "chunks", "parallel")
_FIFOS = ((0, 0), (4, 1 << 20), (8, 512 << 10), (8, 128 << 10))  # slots and bytes of one, with Simple; 0: the preset's
# Instances and protocols of the probes: of all shapes, then of the fastest first. 0: as many as fit.
_FIRST = ((1, "LL"), (0, "Simple"))
_SECOND = ((8, "LL128"), (2, "LL128"), (8, "LL"), (0, "LL128"), (8, "Simple"), (16, "LL128"), (1, "Copy"))
_PROBING = 0.6  # of the simulations
_SMALLER = 0.6  # a larger call may take less, where its messages queue in a better order
_MOST_INSTRUCTIONS = 1_500_000  # of a program
_PART = 1 << 16  # the mean length of blocks of different lengths, which are then scaled


@dataclass(frozen=True, slots=True)
class Place:
    """A program of the space.

    Attributes:
        spec: It.
        shape: The number of its shape; negative: a program that is given, with settings that cannot be changed.
    """

    spec: Spec
    shape: int


@dataclass(frozen=True, slots=True)
class _Known:
    """What is known of a program.

    Attributes:
        simulation: Of it; None: it cannot be compiled, or the machine does not hold it.
        times: Its seconds by size.
        bounds: Seconds of its busiest link by size.
    """

    simulation: Simulation | None
    times: dict[int, float] = field(default_factory=dict[int, float])
    bounds: dict[int, float] = field(default_factory=dict[int, float])

    def busy(self, size: int) -> float:
        """A time that its busiest link hardly takes less than.

        A message takes time beside its bytes, so the time does not grow in proportion to the size: what two smaller
        calls differ by is continued. It does not grow evenly either, because small messages are rounded up, and from
        some size on a message is several.
        """
        smaller = sorted((at, seconds) for at, seconds in self.bounds.items() if at <= size)
        about = [size / at * seconds for at, seconds in self.bounds.items() if at >= size]
        for (one, first), (other, second) in pairwise(smaller):
            about.append(second + (second - first) / (other - one) * (size - other))
        return max(_SMALLER * max(about, default=0.0), smaller[-1][1] if smaller else 0.0)

    def least(self, size: int) -> float:
        """A time that a call of this size is hardly below."""
        smaller = max((took for at, took in self.times.items() if at < size), default=0.0)
        return max(_SMALLER * smaller, self.busy(size))


class Search:
    """The programs for one collective on a machine."""

    def __init__(
        self,
        collective: str,
        on: Platform,
        ranks: int,
        *,
        in_place: bool,
        own: Iterable[str] = (),
        given: Iterable[Spec] = (),
        target: str | None = None,
        threadblocks: int = 0,
        most: int = MOST,
        skew: float = 1.0,
        scratch: ScratchLimit | None = None,
        protocols: Sequence[str] = FORMATS,
    ) -> None:
        """Simulates nothing yet.

        Args:
            collective: Name.
            on: The machine.
            ranks: Number of ranks.
            in_place: The mode.
            own: Algorithms beside the library's, as `gc3.algorithms.load` takes them.
            given: Programs that are tried as they are.
            target: Only programs that this runtime executes as MSCCL XML ("msccl", "azure" or "rccl"), which has FIFOs
                of its own; None: any.
            threadblocks: Most of a rank; 0: what a GPU of the machine holds.
            most: Simulations of a size, about.
            skew: Of the blocks; above 1 the calls are of the v-form, and only programs that serve it are tried.
            scratch: How much scratch memory a rank may use; None: any amount.
            protocols: Those to try, of which the first is "Simple".
        """
        self._protocols = protocols
        self._on = on
        self._skew = skew
        self._scratch = scratch
        self._ranks = ranks
        self._in_place = in_place
        self._target = target
        self._most = most
        self._threadblocks = threadblocks or on.parameters.threadblocks
        self._known: dict[Spec, _Known] = {}
        self._count = 0
        self._best: list[Place] = []  # those of sizes that were searched before
        self._settings: list[dict[str, int]] = []  # by shape: names, and what they are if not given
        self._fifos = dict.fromkeys(_FIFOS[:1] if target else _FIFOS)
        self._platforms = {_FIFOS[0]: on}
        self._shapes: list[Place] = []
        self._given = [Place(spec, -1) for spec in given]
        orders = dict.fromkeys(((), ring_order(on.topology) if is_symmetric(collective) else ()))
        for name in (*catalogue(), *own):
            algorithm = load(name)
            if algorithm.collective_name != collective:
                continue
            names = {parameter.name: parameter.default for parameter in algorithm.parameters}
            for parameters, order in product(self._all_parameters(algorithm), orders):
                spec = Spec(name, parameters, threadblocks=self._threadblocks, order=order)
                self._shapes.append(Place(spec, len(self._shapes)))
                defaults = {name: names[name] for name in _DIVIDING if names.get(name) is not None}
                self._settings.append({"instances": 1, **{n: d for n, d in defaults.items() if isinstance(d, int)}})

    def _all_parameters(self, algorithm: Algorithm) -> Iterator[Parameters]:
        """Those of each division into nodes, the same with every rank as a leader, and the machine's nodes and NICs."""
        names = {parameter.name for parameter in algorithm.parameters}
        members = Counter(rank.node for rank in self._on.topology.ranks[: self._ranks])
        gpus = members[0]
        rails = min(nics(self._on.topology), gpus)
        several = len(members) > 1 and gpus > 1 and set(members.values()) == {gpus}
        for base in divisions(algorithm, self._ranks):
            yield base
            if "leaders" in names:
                yield (*base, ("leaders", "ranks"))
            if several and {"R", "G"} <= names and ("rails" not in names or rails > 1):
                yield (*base, ("G", gpus), *((("rails", rails),) if "rails" in names else ()))

    def fastest(self, size: int) -> tuple[list[tuple[Spec, float]], int]:
        """Returns the programs that were simulated at S = `size` bytes with their seconds, the fastest first.

        The second value is their number. Ties are in the order of trial, so the simpler program is first.
        """
        self._count = 0
        tried: dict[Place, float] = {}

        def look(place: Place) -> float:
            if place not in tried:
                known = self._compiled(place.spec)
                best = min(tried.values(), default=math.inf)
                if known.simulation is None:
                    tried[place] = math.inf
                elif known.least(size) >= best and size not in known.times:
                    return math.inf  # another time: a smaller limit may not hold later, nor at another size
                else:
                    tried[place] = self._seconds(known, size)
            return tried[place]

        for place in (*self._given, *self._best):
            look(place)
        for instances, protocol in _FIRST:
            for shape in self._shapes if protocol in self._protocols else ():
                self._probe(shape, instances, protocol, look)
        least = {place.shape: tried[place] for place in reversed(_starts(tried, by_protocol=False))}
        for shape in sorted(self._shapes, key=lambda each: least.get(each.shape, math.inf)):
            for instances, protocol in _SECOND:
                if protocol in self._protocols and self._count < _PROBING * self._most:
                    self._probe(shape, instances, protocol, look)
        for place in _starts(tried, by_protocol=True):
            self._descend(place, self._neighbours(place), look)
        for place in _starts(tried, by_protocol=True):  # with what is left: what a descent does not step over
            self._descend(place, self._further(place), look)
        found = [(place, took) for place, took in tried.items() if took < math.inf]
        found.sort(key=lambda pair: pair[1])
        self._best = list(dict.fromkeys((*(place for place, _ in found[:2]), *self._best)))[:8]
        return [(place.spec, took) for place, took in found], self._count

    def _probe(self, shape: Place, instances: int, protocol: str, look: Callable[[Place], float]) -> None:
        """Simulates a shape with so many instances, or as many as fit if these are too many."""
        if self._count >= self._most:
            return
        for value in reversed(VALUES):
            if value <= (instances or VALUES[-1]):
                place = replace(shape, spec=replace(shape.spec, instances=value, protocol=protocol))
                if self._compiled(place.spec).simulation is not None:
                    look(place)
                    return

    def _descend(self, place: Place, to: Iterable[Place], look: Callable[[Place], float]) -> None:
        """Goes on from a place to those of `to`, and then to faster neighbours until there is none."""
        took = look(place)
        todo = list(to)
        seen = {place, *todo}
        while todo and self._count < self._most:
            other = todo.pop(0)
            found = look(other)
            if found < took:
                place, took = other, found
                todo = [each for each in self._neighbours(place) if each not in seen] + todo
                seen.update(todo)

    def _neighbours(self, place: Place) -> Iterator[Place]:
        """Those with one setting changed, then those with one raised and another lowered."""
        spec, settings = place.spec, self._settings[place.shape]
        beside = {name: _beside(_value(spec, name, default), default) for name, default in settings.items()}
        for name, values in beside.items():
            for value in values:
                yield replace(place, spec=_with(spec, {name: value}, settings))
        for protocol in self._protocols:
            if protocol != spec.protocol:
                yield replace(place, spec=replace(spec, protocol=protocol, slots=0, slot_bytes=0))
        for slots, slot_bytes in self._fifos if spec.protocol == "Simple" else ():
            if slot_bytes != spec.slot_bytes:
                yield replace(place, spec=replace(spec, slots=slots, slot_bytes=slot_bytes))
        for first, more in beside.items():
            for second, less in beside.items():
                for high in more if first != second else ():
                    for low in less:
                        if high > _value(spec, first, settings[first]) and low < _value(spec, second, settings[second]):
                            yield replace(place, spec=_with(spec, {first: high, second: low}, settings))

    def _further(self, place: Place) -> Iterator[Place]:
        """Those with any other value of one setting."""
        settings = self._settings[place.shape]
        for name in settings:
            for value in VALUES:
                yield replace(place, spec=_with(place.spec, {name: value}, settings))

    def space(self) -> Iterator[Spec]:
        """Yields every program among which `fastest` looks: for comparison with a search of all of them."""
        yield from (place.spec for place in self._given)
        for place, settings in zip(self._shapes, self._settings, strict=True):
            values = [(0, *VALUES) if default == 0 else VALUES for default in settings.values()]
            for chosen in product(*values):
                spec = _with(place.spec, dict(zip(settings, chosen, strict=True)), settings)
                yield from (replace(spec, slots=slots, slot_bytes=size) for slots, size in self._fifos)
                yield from (replace(spec, protocol=protocol) for protocol in self._protocols[1:])

    def seconds(self, spec: Spec, size: int, *, below: float = math.inf) -> float:
        """Returns the time of one program; infinite if it does not run, or its busiest link alone takes `below`."""
        known = self._compiled(spec)
        return math.inf if known.simulation is None or known.busy(size) >= below else self._seconds(known, size)

    def _compiled(self, spec: Spec) -> _Known:
        known = self._known.get(spec)
        if known is None:
            known = self._known[spec] = _Known(self._simulation(spec))
        return known

    def _simulation(self, spec: Spec) -> Simulation | None:
        try:
            one = None if spec.instances == 1 else self._compiled(replace(spec, instances=1)).simulation
            if one is not None and one.program.instruction_count * spec.instances > _MOST_INSTRUCTIONS:
                return None
            program = spec.compile(self._ranks, in_place=self._in_place, prove=False)
            if program.ranks != self._ranks:
                return None
            if self._target is not None:
                program.core.to_xml(dialect_of(self._target), self._target)
            counts = None
            if self._skew > 1:
                program.check_v_form()
                blocks = program.core.collective.v_counts
                counts = uneven(blocks, _PART * blocks, self._skew)
            simulation = Simulation(program, self._with_fifos(spec), counts)
            simulation.check_resident()
        except errors.UserError:  # other ranks, too many threadblocks, no path, or not for the target
            return None
        return simulation

    def _with_fifos(self, spec: Spec) -> Platform:
        """The machine with the FIFOs of a program."""
        key = spec.slots, spec.slot_bytes
        if key not in self._platforms:
            p = self._on.parameters
            timing = p.protocol("Simple")
            timing = replace(timing, slots=key[0] or timing.slots, slot_bytes=key[1] or timing.slot_bytes)
            protocols = {**p.protocols, "Simple": timing}
            self._platforms[key] = replace(self._on, parameters=replace(p, protocols=protocols))
        return self._platforms[key]

    def _seconds(self, known: _Known, size: int) -> float:
        if size not in known.times:
            assert known.simulation is not None  # noqa: S101  the caller has looked
            if self._scratch is not None and not self._scratch.allows(known.simulation.program, size):
                known.times[size] = math.inf
                return math.inf
            self._count += 1
            try:
                found = known.simulation.run(size)
            except errors.UserError:  # it needs more slots
                known.times[size] = math.inf
            else:
                known.times[size] = found.time_s
                known.bounds[size] = found.bound_s
        return known.times[size]


def _starts(tried: dict[Place, float], *, by_protocol: bool) -> list[Place]:
    """The best place of each shape, or of each shape and protocol, the fastest first."""
    best: dict[tuple[int, str], Place] = {}
    for place, took in sorted(tried.items(), key=lambda pair: pair[1]):
        if took < math.inf and place.shape >= 0:
            best.setdefault((place.shape, place.spec.protocol if by_protocol else ""), place)
    return list(best.values())


def _value(spec: Spec, name: str, default: int) -> int:
    return spec.instances if name == "instances" else int(dict(spec.parameters).get(name, default))


def _with(spec: Spec, values: dict[str, int], defaults: dict[str, int]) -> Spec:
    """The program with other settings; a parameter that has its default is left out."""
    given = {**dict(spec.parameters), **{name: value for name, value in values.items() if name != "instances"}}
    parameters = tuple((name, value) for name, value in given.items() if defaults.get(name) != value)
    return replace(spec, parameters=parameters, instances=values.get("instances", spec.instances))


def _beside(value: int, default: int) -> list[int]:
    """The values after and before one of a setting."""
    values = (0, *VALUES) if default == 0 else VALUES
    at = values.index(value)
    return [*values[at + 1 : at + 2], *values[max(at - 1, 0) : at]]
