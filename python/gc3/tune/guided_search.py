"""The fastest program at a size by few simulations, which a model of the times guides.

A *shape* is an algorithm with the parameters that decide what it sends where: the root, the order of ranks, or how they
are divided into nodes; or a synthesized schedule. Its *settings* only divide the same work: instances, channels or
lanes, chunks or parts, the protocol, FIFOs, the order of instructions.
Every shape is simulated once with settings in the middle, then always the program whose time may be the least
(`gc3.tune.surrogate`). Times at the sizes beside it count as well, so that a search seldom begins with what is slow
there. A program is not simulated if its time must be above the best: it takes about as long as a
smaller call or longer, and longer than its busiest link. Programs of a protocol are not even compiled where no program
of it can be faster than the best, because of what must enter or leave ranks and nodes.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import chain, product
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from gc3 import errors
from gc3.algorithms import catalogue, load
from gc3.algorithms._one_rank import LOOPED
from gc3.comm.spec import Spec
from gc3.comm.uneven import uneven
from gc3.datatypes import FORMATS
from gc3.lang import Algorithm
from gc3.runtime import for_target
from gc3.runtime.program import Program, dialect_of
from gc3.runtime.scratch import ScratchLimit
from gc3.sim import Simulation
from gc3.support.at_once import at_once
from gc3.synth import OneRankResult
from gc3.tune.bound import floors
from gc3.tune.schedules import compiled
from gc3.tune.space import FIFOS, Parameters, affordable, divisions, most_work, on_nodes, orders_of, serves
from gc3.tune.surrogate import LEAST, Features, Known, Surrogate

if TYPE_CHECKING:
    from gc3.datatypes import Array
    from gc3.sim import Platform
    from gc3.synth import Result
    from gc3.tune.surrogate import Row

MOST = 120  # simulations of a size
VALUES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)  # of instances, and of parameters that divide the work
# The same of schedules.
_WAYS = {"instances": (*VALUES[:4], 5, *VALUES[4:]), "lanes": (0, *VALUES[:7]), "parts": (1, 2, 4, 8)}
_DIVIDING = ("channels", "chunks", "parallel", "lanes", "parts")
_ORDERS = ("depth", "steps", "gathered")  # of a schedule's instructions; the last is for one that reduces
# What each shape is simulated with first: what is seldom far from the best.
_FIRST_INSTANCES, _FIRST_PARTS, _FIRST_PROTOCOL = 3, 4, "LL128"
_BESIDE = 256  # times as large, or as small: sizes whose times say something about those of a size
_FASTEST = 20  # programs of a size beside it whose times are told to the model
_WINNERS = 2  # of a size beside it, which are tried first
_MOST_INSTRUCTIONS = 1_500_000  # of a program
_KEPT = 400  # simulations that are not made again
ALIKE = 1.005  # programs that take so many times as long as the best one count as fast as it
_PART = 1 << 16  # the mean length of blocks of different lengths, which are then scaled


@dataclass(frozen=True, slots=True)
class One:
    """An algorithm of which only the settings are searched.

    Attributes:
        shapes: It, on the nodes and NICs of the machine, too.
        settings: Its parameters that divide the work, and what they are if not given.
        compile: Makes a program of it.
        work: A program with more slice operations is not simulated.
    """

    shapes: Sequence[Spec]
    settings: Mapping[str, int]
    compile: Callable[[Spec], Program]
    work: int


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
        schedules: Mapping[str, Result | OneRankResult] | None = None,
        root: int = 0,
        one: One | None = None,
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
            most: Simulations of a size; the programs that are given count, but all of them are tried.
            skew: Of the blocks; above 1 the calls are of the v-form, and only programs that serve it are tried.
            scratch: How much scratch memory a rank may use; None: any amount.
            protocols: Those to try, of which the first is "Simple".
            schedules: Synthesized ones by the names of their programs, in place of all algorithms.
            root: Theirs, if the collective has one.
            one: An algorithm in place of all.
        """
        self._one_of = one
        self._schedules = schedules or {}
        self._protocols = protocols
        self._on = on
        self._skew = skew
        self._scratch = scratch
        self._ranks = ranks
        self._in_place = in_place
        self._target = target
        self._most = most
        self._threadblocks = threadblocks or on.parameters.threadblocks
        self._known: dict[Spec, Known] = {}
        self._made = lru_cache(maxsize=len(FIFOS) * 64)(self.program)
        self._simulation = lru_cache(maxsize=_KEPT)(self._simulated)
        self._locks: dict[Spec, Lock] = {}  # of those that are compiled, so that each is compiled once
        self._counts: Counter[int] = Counter()
        self._found: dict[int, dict[int, float]] = {}  # by size: seconds of programs of the space
        self._settings: list[dict[str, int]] = []  # by shape: names, and what they are if not given
        self._fifos = dict.fromkeys(FIFOS[:1] if target or one else FIFOS)
        self._platform = lru_cache(on.with_fifos)
        whole = ranks == on.topology.rank_count and skew == 1 and one is None
        self._bounded = (collective, root) if whole else None
        self._shapes: list[Spec] = []
        self._given = list(dict.fromkeys(given))
        if one is not None:
            self._shapes += one.shapes
            self._settings += [{"instances": 1, **one.settings} for _ in one.shapes]
            return
        # With another order or other settings each of many ranks has steps of its own.
        orders = orders_of(collective, on.topology) if ranks <= LOOPED else [()]
        own = tuple(own)
        several = {"parts": 1} if on.topology.node_count > 1 else {}
        for name in self._schedules:
            self._shapes.append(Spec(name, (), threadblocks=self._threadblocks))
            settings = {"instances": 1, "lanes": 0, **several}
            self._settings.append({} if isinstance(self._schedules[name], OneRankResult) else settings)
        for name in (*catalogue(), *own) if schedules is None else ():
            algorithm = load(name)
            if name not in own and not serves(algorithm, (collective,), on.topology):
                continue
            names = {parameter.name: parameter.default for parameter in algorithm.parameters}
            for parameters, order in product(self._all_parameters(algorithm), orders):
                self._shapes.append(Spec(name, parameters, threadblocks=self._threadblocks, order=order))
                defaults = {name: names.get(name) for name in _DIVIDING}
                settings = {"instances": 1, **{n: d for n, d in defaults.items() if isinstance(d, int)}}
                self._settings.append({} if ranks > LOOPED else settings)

    def ways(self, schedule: str, order: str, *, lanes: int = 0, parts: int = 1, **given: Any) -> list[Spec]:
        """Returns the program of a schedule in an order, or the nearest one that it has: see `gc3.synth.Result`.

        If scratch memory is limited, also that which uses places in it again. `given`: other fields of `Spec`.
        """
        if isinstance(self._schedules[schedule], OneRankResult):
            return [replace(Spec(schedule, (), threadblocks=self._threadblocks, **given), instances=1)]
        told = {"lanes": lanes, "parts": parts}
        spec = _with(Spec(schedule, (), threadblocks=self._threadblocks, **given), told, {"lanes": 0, "parts": 1})
        forms = self._forms(schedule)
        nearest = order if (("order", order),) in forms else "steps"
        return [replace(spec, parameters=(*form, *spec.parameters)) for form in forms if ("order", nearest) in form]

    def _forms(self, name: str) -> list[Parameters]:
        """The orders of a schedule's instructions, and whether places in scratch are used again where they can be."""
        made = self._schedules.get(name)
        if made is None or isinstance(made, OneRankResult):
            return [()]
        reduces = made.problem.reduced is not None
        again = ((), (("again", 1),))[: 1 if self._scratch is None else 2]
        return [(("order", order), *more) for more in again for order in _ORDERS[: 2 + reduces]]

    def keep(self, schedules: Container[str]) -> None:
        """Leaves out the programs of all other schedules, before the first search."""
        kept = [pair for pair in zip(self._shapes, self._settings, strict=True) if pair[0].algorithm in schedules]
        self._shapes, self._settings = [shape for shape, _ in kept], [settings for _, settings in kept]

    def _all_parameters(self, algorithm: Algorithm) -> Iterator[Parameters]:
        """Those of each division into nodes, the same with every rank as a leader, and the machine's nodes and NICs."""
        leaders = any(parameter.name == "leaders" for parameter in algorithm.parameters)
        placed = on_nodes(algorithm, self._on.topology, self._ranks)
        for base in divisions(algorithm, self._ranks):
            if self._ranks > LOOPED:  # with more parameters each rank has steps of its own
                if affordable(algorithm, base, self._ranks):
                    yield base
                continue
            yield base
            if leaders:
                yield (*base, ("leaders", "ranks"))
            if placed:
                yield (*base, *placed)

    def fastest(self, size: int) -> tuple[list[tuple[Spec, float]], int]:
        """Returns the programs that were simulated at S = `size` bytes with their seconds, the fastest first.

        The second value is their number. Ties are in the order of trial, so the simpler program is first.
        """
        return next(self.fastest_of((size,)))

    def fastest_of(self, sizes: Sequence[int]) -> Iterator[tuple[list[tuple[Spec, float]], int]]:
        """Yields what `fastest` returns for each of some sizes, which are searched at once on all cores.

        Each search learns from sizes that were found before, and none from another one of these, so the results do not
        depend on the number of cores.
        """
        before = frozenset(self._found)
        if not before and self._shapes:  # every one of these searches begins with them
            deque(at_once(self._look_first, range(len(self._shapes))), maxlen=0)
        held: Array | None = np.array(self._illegal) if self._shapes else None
        for size, (tried, given, illegal) in zip(
            sizes, at_once(lambda size: self._searched(size, before, held), sizes), strict=True
        ):
            self._found[size] = tried
            if illegal is not None:
                self._illegal |= illegal
            times = {**given, **{self._places[index]: took for index, took in tried.items()}}
            found = [(spec, took) for spec, took in times.items() if took < math.inf]
            yield sorted(found, key=lambda pair: pair[1]), self._counts[size]

    def known(self, size: int) -> list[tuple[Spec, float]]:
        """Returns the programs that were simulated at a size, in the order of their seconds."""
        times = [(spec, known.times.get(size, math.inf)) for spec, known in self._known.copy().items()]
        return sorted((pair for pair in times if pair[1] < math.inf), key=lambda pair: pair[1])

    def simulations(self, size: int) -> int:
        """Returns the number of simulations at a size since the last search there began."""
        return self._counts[size]

    def _look_first(self, number: int) -> None:
        """Compiles what every search simulates first of a shape."""
        for index in self._first(number):
            if self._compiled(self._places[index]).instructions:
                break

    def _searched(
        self, size: int, before: Container[int], held: Array | None
    ) -> tuple[dict[int, float], dict[Spec, float], Array | None]:
        """The times of programs of the space and of those that are given, and what the machine does not hold."""
        self._counts[size] = 0
        given = {spec: self.seconds(spec, size) for spec in self._given}
        tried: dict[int, float] = {}
        illegal: Array | None = None if held is None else np.array(held)
        if illegal is not None:
            self._guided(size, tried, min(given.values(), default=math.inf), before, illegal)
        return tried, given, illegal

    def _guided(self, size: int, tried: dict[int, float], best: float, before: Container[int], illegal: Array) -> None:
        """Simulates programs of the space until there are as many as allowed; `best`: a time that is known."""
        features = self._features
        beside = self._beside(size, before)
        telling = {other: self._telling(other) for other in beside}
        told = [self._index[spec] for spec, _ in self.known(size) if spec in self._index]
        model = Surrogate(features, self._most + len(told) + sum(len(times) for times in telling.values()))
        todo = ~illegal

        def leave_out(least: float) -> None:
            """Those that cannot be faster than the best time so far, by more than what counts as nothing."""
            nonlocal best
            best = min(best, least)
            todo[(ALIKE * size * self._floors >= best)[features.protocol]] = False

        def look(index: int) -> bool:
            """Whether the machine holds the program."""
            todo[index] = False
            known = self._compiled(self._places[index])
            if not known.instructions:
                illegal[self._not_held(index)] = True
                todo[illegal] = False
                return False
            if size in known.times or known.least(size, before) < best:
                took = self._seconds(self._places[index], known, size)
                if took < math.inf:
                    tried[index] = took
                    model.add(index, took)
                    leave_out(took)
            return True

        for other, times in telling.items():
            least = max(min(times.values()), LEAST)
            for index, took in times.items():
                model.add_elsewhere(index, math.log2(max(other, 1) / max(size, 1)), max(took, LEAST) / least)
        leave_out(best)
        winners = [list(times)[:_WINNERS] for times in telling.values()]
        for index in dict.fromkeys(chain(told, *winners)):
            look(index)
        if len(beside) < 2:  # noqa: PLR2004  with one on each side the model knows what is slow
            for number in sorted({*range(len(self._shapes))} - {int(features.shape[index]) for index in told}):
                for index in self._first(number):
                    if self._counts[size] < self._most and (look(index) if todo[index] else not illegal[index]):
                        break
        while self._counts[size] < self._most and todo.any():
            look(model.most_promising(todo))

    def _not_held(self, index: int) -> Array:
        """Which programs the machine does not hold, as it does not hold one of them."""
        spec = self._places[index]
        synthesized = spec.algorithm in self._schedules
        counts = [n for n in (_WAYS["instances"] if synthesized else VALUES) if n <= spec.instances]
        many = [n for n in counts if self._too_many(replace(spec, instances=n))]
        first = self._index[replace(spec, instances=min(many, default=spec.instances))]
        return self._features.at_least(first, any_protocol=bool(many) and synthesized)

    def _telling(self, size: int) -> dict[int, float]:
        """The fastest programs of a size, and the fastest of each shape and protocol, which say what is slow."""
        ordered = sorted(self._found[size].items(), key=lambda pair: pair[1])
        arms = self._features.shape, self._features.protocol
        best = {tuple(int(arm[index]) for arm in arms): index for index, _ in reversed(ordered)}
        kept = {*best.values(), *(index for index, _ in ordered[:_FASTEST])}
        return {index: took for index, took in ordered if index in kept}

    def _beside(self, size: int, before: Container[int]) -> list[int]:
        """The next smaller and the next larger size that was known before, as far as they are near."""
        found = [other for other, times in self._found.copy().items() if times and other in before]
        known = [other for other in found if size / _BESIDE <= other <= size * _BESIDE]
        smaller, larger = [other for other in known if other < size], [other for other in known if other > size]
        return [*([max(smaller)] if smaller else []), *([min(larger)] if larger else [])]

    def _first(self, number: int) -> Iterator[int]:
        """The programs of a shape to begin with, until the machine holds one."""
        shape, settings = self._shapes[number], self._settings[number]
        protocol = _FIRST_PROTOCOL if _FIRST_PROTOCOL in self._protocols else self._protocols[0]
        for parts, instances in product((_FIRST_PARTS, 1), range(_FIRST_INSTANCES, 0, -1)):
            values = {name: instances if name == "instances" else parts for name in settings}
            spec = _with(shape, values, settings)
            form = self._forms(shape.algorithm)[0]
            yield self._index[replace(spec, parameters=(*form, *spec.parameters), protocol=protocol)]

    def least(self, size: int) -> float:
        """Returns seconds at a size that no program takes less than, by what must enter or leave ranks and nodes."""
        return size * float(self._floors.min())

    def space(self) -> Iterator[Spec]:
        """Yields every program among which `fastest` looks: for comparison with a search of all of them."""
        yield from self._given
        yield from self._places

    @cached_property
    def _places(self) -> list[Spec]:
        return [spec for spec, _ in self._programs()]

    @cached_property
    def _index(self) -> dict[Spec, int]:
        return {spec: index for index, spec in enumerate(self._places)}

    @cached_property
    def _features(self) -> Features:
        return Features.of([row for _, row in self._programs()])

    @cached_property
    def _floors(self) -> Array:
        """Seconds for each byte of S that no program takes less than, by protocol; 0: that is not known."""
        if self._bounded is None:
            return np.zeros(len(self._protocols))
        return np.array(floors(self._on, *self._bounded, self._protocols))

    @cached_property
    def _illegal(self) -> Array:
        """Which programs the machine does not hold, as far as that is known."""
        return np.zeros(len(self._places), bool)

    def _programs(self) -> Iterator[tuple[Spec, Row]]:
        """Yields all programs of the space with what a model knows of them."""
        for number, (shape, settings) in enumerate(zip(self._shapes, self._settings, strict=True)):
            values = [(0, *VALUES) if default == 0 else VALUES for default in settings.values()]
            if shape.algorithm in self._schedules:
                values = [_WAYS[name] for name in settings]
            forms = self._forms(shape.algorithm)
            for chosen in product(*values):
                at = dict(zip(settings, chosen, strict=True))
                plain = _with(shape, at, settings)
                parts = tuple(at.get(name, 1) for name in _DIVIDING)
                instances = at.get("instances", 1)
                for form, told in enumerate(forms):
                    spec = replace(plain, parameters=(*told, *plain.parameters)) if told else plain
                    first = form * len(self._fifos)
                    for choice, (slots, size) in enumerate(self._fifos, first):
                        yield (
                            replace(spec, slots=slots, slot_bytes=size),
                            (number, 0, choice, instances, parts),
                        )
                    for protocol, name in enumerate(self._protocols[1:], 1):
                        yield replace(spec, protocol=name), (number, protocol, first, instances, parts)

    def seconds(self, spec: Spec, size: int, *, below: float = math.inf) -> float:
        """Returns the time of one program; infinite if it does not run, or its busiest link alone takes `below`."""
        known = self._compiled(spec)
        return math.inf if not known.instructions or known.busy(size) >= below else self._seconds(spec, known, size)

    def _compiled(self, spec: Spec) -> Known:
        known = self._known.get(spec)
        if known is None:
            with self._locks.setdefault(spec, Lock()):
                known = self._known.get(spec)
                if known is None:
                    simulation = self._simulation(spec)
                    known = self._known[spec] = Known() if simulation is None else Known.of(simulation.fifo.program)
        return known

    def _simulated(self, spec: Spec) -> Simulation | None:
        """Its simulation; None: it cannot be compiled, or the machine does not hold it."""
        try:
            if spec != self._one(spec) and self._too_many(spec):
                return None
            program = self._made(spec.compiled, self._in_place)
            if program.ranks != self._ranks:
                return None
            counts = None
            if self._skew > 1:
                program.check_v_form()
                blocks = program.collective.v_counts
                counts = uneven(blocks, _PART * blocks, self._skew)
            simulation = Simulation(program, self._platform(spec.slots, spec.slot_bytes), counts)
            simulation.check_resident()
        except errors.UserError:  # other ranks, too many threadblocks, no path, or not for the target
            return None
        return simulation

    def program(self, spec: Spec, in_place: bool) -> Program:
        """Compiles a program, of a schedule as well.

        Raises:
            gc3.UserError: It does not work in place, or is not for the machine or the target.
        """
        if self._one_of is not None:
            return self._one_of.compile(spec)
        if spec.algorithm in self._schedules:
            program = compiled(self._schedules[spec.algorithm], spec, in_place=in_place)
        else:
            program = spec.compile(self._ranks, in_place=in_place, prove=False)
        if self._target is not None:
            for_target.prove(program.core, self._target, dialect_of(self._target))
        return program

    def _too_many(self, spec: Spec) -> bool:
        """Whether one instance already shows that the machine does not hold so many."""
        one = self._compiled(self._one(spec))
        return (
            not one.instructions
            or one.instructions * spec.instances > _MOST_INSTRUCTIONS
            or 0 < spec.threadblocks < one.connections * spec.instances
        )

    def _one(self, spec: Spec) -> Spec:
        """One instance of a program, of which those in other orders and protocols have as many threadblocks."""
        one = replace(spec, instances=1)
        if spec.algorithm not in self._schedules:
            return one
        form = self._forms(spec.algorithm)[0]
        parts = tuple((name, value) for name, value in spec.parameters if name in _WAYS)
        return replace(one, parameters=(*form, *parts), protocol="Simple", slots=0, slot_bytes=0)

    def _seconds(self, spec: Spec, known: Known, size: int) -> float:
        if size not in known.times:
            simulation = self._simulation(spec)
            assert simulation is not None  # noqa: S101  the caller has looked
            allowed = self._scratch is None or self._scratch.allows(simulation.fifo.program, size)
            most = math.inf if spec in self._given else most_work(spec, self._shapes, self._ranks)
            most = most if self._one_of is None else self._one_of.work
            if not allowed or (most < math.inf and simulation.work(size) > most):
                known.times[size] = math.inf
                return math.inf
            self._counts[size] += 1
            try:
                found = simulation.run(size)
            except errors.UserError:  # it needs more slots
                known.times[size] = math.inf
            else:
                known.times[size] = found.time_s
                known.bounds[size] = found.bound_s
        return known.times[size]


def _with(spec: Spec, values: dict[str, int], defaults: dict[str, int]) -> Spec:
    """The program with other settings; a parameter that has its default is left out."""
    given = {**dict(spec.parameters), **{name: value for name, value in values.items() if name != "instances"}}
    parameters = tuple((name, value) for name, value in given.items() if defaults.get(name) != value)
    return replace(spec, parameters=parameters, instances=values.get("instances", spec.instances))
