"""The fastest programs for a collective on a machine, as far as the simulator can tell: `gc3 synth best`.

Candidates are the library's programs and synthesized schedules. A schedule becomes a program in many *ways*: with
several channels, instances and protocols. Among the library's programs, and among the ways of the schedules, descents
from a few starting points look for the fastest.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

from gc3 import collectives, datatypes, errors
from gc3.comm import programs
from gc3.comm.selection import Spec
from gc3.lang import compile as compile_program
from gc3.runtime import for_target
from gc3.runtime.program import Program, dialect_of, verify
from gc3.runtime.scratch import ScratchLimit, share
from gc3.sim import Platform, Simulation
from gc3.support.words import counted
from gc3.synth import Order, Result
from gc3.tune.guided import Search
from gc3.tune.ranges import SIMULATED_CHANGE, Range, ranges
from gc3.tune.search import Measured, far_apart
from gc3.tune.space import FIFOS

LANES = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24)
INSTANCES = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32)
PARTS = (1, 2, 3, 4, 6, 8)  # of transfers inside nodes
ORDERS: tuple[Order, ...] = ("depth", "steps", "gathered")
_ALIKE = 1.002  # programs of the library that take so many times as long as the best one count as fast as it
_STARTS = 5  # descents at each size
_HOPELESS = 2.0  # a schedule whose first programs take so many times as long as the best one gets no further ones
_GAIN = 0.99  # a synthesized program must be faster than the library's by this factor to be worth a file
_MOST_SENDS = 400_000  # of a program
_KEPT = 400  # simulations that are not made again


class Way(NamedTuple):
    """How a schedule becomes a program.

    Attributes:
        schedule: Its number.
        lanes: See `gc3.synth.Result`.
        instances: Copies that run in parallel.
        protocol: "Simple", "LL", "LL128", "Pull" or "Copy".
        order: What its threadblocks do first: see `gc3.synth.Result`.
        parts: Parallel parts of a transfer inside a node: see there.
        again: Whether places in scratch are used again wherever they can be.
        fifo: Slots of a connection, and bytes of a slot, with "Simple"; 0: the preset's.
    """

    schedule: int
    lanes: int
    instances: int
    protocol: str
    order: Order = "depth"
    parts: int = 1
    again: bool = False
    fifo: tuple[int, int] = FIFOS[0]


# The first programs of each schedule.
_SMALL_SIZE = 256 << 10
_SMALL = (Way(0, 0, 1, "LL"), Way(0, 0, 4, "LL"), Way(0, 0, 2, "LL128"))
_LARGE = (
    Way(0, 1, 2, "Simple", "gathered", fifo=FIFOS[2]),
    Way(0, 0, 4, "Simple"),
    Way(0, 1, 4, "Simple"),
    Way(0, 2, 2, "Simple"),
    Way(0, 4, 1, "Simple"),
    Way(0, 1, 2, "Simple", "gathered"),
    Way(0, 1, 1, "Simple", "gathered", 2),
    Way(0, 0, 1, "Copy", "steps"),
)


@dataclass(frozen=True, slots=True)
class Fastest:
    """The fastest programs at one size.

    Attributes:
        size: S in bytes.
        time_s: Predicted time of the fastest.
        way: It, if it is synthesized.
        spec: It, if it is the library's.
        library: The fastest program of the library; None: it has none.
        library_s: Its time; infinite if there is none.
    """

    size: int
    time_s: float
    way: Way | None
    spec: Spec | None
    library: Spec | None
    library_s: float

    @property
    def protocol(self) -> str:
        """That of the fastest; empty if there is none."""
        program = self.way or self.spec
        return "" if program is None else program.protocol


class Best:
    """The search for one collective on one machine."""

    def __init__(
        self,
        collective: str,
        on: Platform,
        root: int = 0,
        *,
        threadblocks: int = 0,
        target: str | None = None,
        scratch: ScratchLimit | None = None,
        protocols: Collection[str] = datatypes.FORMATS,
    ) -> None:
        """Simulates nothing yet.

        Args:
            collective: Name.
            on: The machine.
            root: The root of a rooted collective.
            threadblocks: Most of a rank, if fewer than those of the machine; 0: no further limit.
            target: Only programs that this runtime executes as MSCCL XML: "msccl", "azure" or "rccl"; None: any.
            scratch: How much scratch memory a rank may use; None: any amount.
            protocols: Those that may be used, as far as machine, target and collective allow it; "Simple" always.
        """
        allowed = {"Simple", *protocols} - ({"Copy"} if collectives.get(collective).reduces else set())
        if target is not None:
            allowed &= {*datatypes.FORMATS}
        self.protocols = tuple(p for p in datatypes.PROTOCOLS if p in allowed and p in on.parameters.protocols)
        self.collective = collective
        self.platform = on
        self.root = root
        self.in_place = collective == "broadcast"  # the mode in which communicators call it
        self.found: dict[int, Fastest] = {}
        self.searched: set[int] = set()  # sizes for which no search was cut short
        self.results: list[Result] = []
        self.scratch = scratch
        self._target = target
        self._threadblocks = min((n for n in (threadblocks, on.parameters.threadblocks) if n), default=0)
        self._times: dict[tuple[Way, int], float] = {}
        self._fifos = FIFOS[:1] if target else FIFOS
        self._platform = lru_cache(on.with_fifos)
        self._simulation = lru_cache(maxsize=_KEPT)(self._simulated)

    def has(self, size: int) -> bool:
        """Returns whether a program was found for a size."""
        return size in self.found and self.found[size].time_s < math.inf

    def library(self, sizes: Iterable[int], begin: Callable[[str], None], deadline: float = math.inf) -> None:
        """Simulates the library's programs at these sizes, ascending, until a time of `time.monotonic`."""
        on = self.platform
        search = Search(
            self.collective,
            on,
            on.topology.rank_count,
            in_place=self.in_place,
            target=self._target,
            threadblocks=self._threadblocks,
            scratch=self.scratch,
            protocols=self.protocols,
        )
        for size in sorted(sizes):
            begin(f"programs of the library, {size} B")
            if time.monotonic() > deadline:
                return
            tried, _ = search.fastest(size)
            # Other runtimes hold fewer threadblocks and channels, so an instance must bring something.
            alike = [pair for pair in tried if pair[1] <= _ALIKE * tried[0][1]]
            best, least = min(alike, key=lambda pair: pair[0].instances, default=(None, math.inf))
            self.found[size] = Fastest(size, least, None, best, best, least)

    def descend(self, sizes: list[int], begin: Callable[[str], None], deadline: float = math.inf) -> None:
        """Looks for the fastest ways of the schedules in `results`, until a time of `time.monotonic`.

        First it simulates a few ways of every schedule at all sizes. The descents come after that, at sizes that are
        far apart first.
        """
        known = [size for size in sizes if size in self.found]
        for starts, served in (
            (_LARGE, [s for s in known if s > _SMALL_SIZE]),
            (_SMALL, [s for s in known if s <= _SMALL_SIZE]),
        ):
            for start in starts if served else ():
                if start.protocol not in self.protocols:
                    continue
                copies = counted(start.instances, "instance")
                begin(f"{counted(len(self.results), 'schedule')} with {copies}, {start.protocol}")
                for size in served:
                    for number in self._promising(size):
                        if time.monotonic() > deadline:
                            return
                        self._note(self._start(start, number), size)
        for number in far_apart(len(known)):
            size = known[number]
            begin(f"{counted(len(self.results), 'schedule')}, {size} B")
            for way in {each.way for each in self.found.values() if each.way is not None}:
                self._note(way, size)
            for way in list(self._best_ways(size).values())[:_STARTS]:
                self._descend(way, size, deadline)
            if time.monotonic() > deadline:
                return
            self.searched.add(size)

    def _best_ways(self, size: int) -> dict[int, Way]:
        """The best way of each schedule so far, in the order of their times."""
        best: dict[int, Way] = {}
        for way in sorted((way for way, at in self._times if at == size), key=lambda way: self._times[way, size]):
            best.setdefault(way.schedule, way)
        return best

    def _promising(self, size: int) -> list[int]:
        """The schedules of which no program runs yet, or one that is not much slower than the best one."""
        took = {n: self._times[way, size] for n, way in self._best_ways(size).items()}
        limit = _HOPELESS * self.found[size].time_s
        return [n for n in range(len(self.results)) if not limit < took.get(n, math.inf) < math.inf]

    def _start(self, start: Way, schedule: int) -> Way:
        """A first program of a schedule."""
        order = start.order if start.order in self._orders(schedule) else "steps"
        return start._replace(schedule=schedule, order=order)

    def _orders(self, schedule: int) -> tuple[Order, ...]:
        return ORDERS if self.results[schedule].problem.reduced is not None else ORDERS[:2]

    def fastest_of(self, schedule: int, size: int) -> tuple[Way, float]:
        """Returns the fastest way that is found for one schedule at a size, and its time in seconds."""
        some = _SMALL if size <= _SMALL_SIZE else _LARGE
        starts = [self._start(start, schedule) for start in some if start.protocol in self.protocols]
        for way in starts:
            self._note(way, size)
        way = self._descend(min(starts, key=lambda w: self._times[w, size]), size, math.inf)
        return way, self._times[way, size]

    def _descend(self, way: Way, size: int, deadline: float) -> Way:
        """Looks at ways that use most of the threadblocks, then goes on to faster neighbours; returns the last."""
        todo = [*self._full(way), *self._neighbours(way)]
        while todo and time.monotonic() < deadline:
            other = todo.pop(0)
            self._note(other, size)
            if self._times[other, size] < self._times[way, size]:
                way = other
                todo += [w for w in self._neighbours(other) if (w, size) not in self._times]
        return way

    def _neighbours(self, way: Way) -> Iterator[Way]:
        """The ways that differ by one step, or by fewer of one and more of the other."""
        fewer_lanes, more_lanes = _beside(LANES, way.lanes)
        fewer, more = _beside(INSTANCES, way.instances)
        pairs = ((way.lanes, more), (more_lanes, way.instances), (more_lanes, fewer), (fewer_lanes, more))
        for lanes, instances in (*pairs, (fewer_lanes, way.instances), (way.lanes, fewer)):
            yield way._replace(lanes=lanes, instances=instances)
        for protocol in self.protocols:
            yield way._replace(protocol=protocol, fifo=FIFOS[0])
        if way.protocol == "Simple":
            for fifo in self._fifos:
                yield way._replace(fifo=fifo)
        for order in self._orders(way.schedule):
            yield way._replace(order=order)
        if len({rank.node for rank in self.platform.topology.ranks}) > 1:
            fewer_parts, more_parts = _beside(PARTS, way.parts)
            for parts, instances in ((fewer_parts, way.instances), (more_parts, way.instances), (more_parts, fewer)):
                yield way._replace(parts=parts, instances=instances)

    def _full(self, way: Way) -> Iterator[Way]:
        """For each number of lanes the way with as many instances as there are threadblocks for."""
        for lanes in LANES:
            alone = way._replace(lanes=lanes, instances=1)
            simulation = self._simulation(alone)
            if simulation is not None and self._threadblocks:
                most = self._threadblocks // max(simulation.program.threadblocks_per_rank)
                yield alone._replace(instances=max(n for n in INSTANCES if n <= max(most, 1)))

    def _note(self, way: Way, size: int) -> None:
        """Simulates a program, if it has not been."""
        if (way, size) in self._times:
            return
        if self.scratch is not None and not way.again:
            simulation = self._simulation(way)
            if simulation is not None and not self.scratch.allows(simulation.program, size):
                self._note(way._replace(again=True), size)
        took = self._times[way, size] = self.seconds(way, size)
        found = self.found[size]
        if took < min(found.time_s, _GAIN * found.library_s):
            self.found[size] = replace(found, time_s=took, way=way, spec=None)

    def seconds(self, way: Way, size: int) -> float:
        """Returns the predicted time of a way; infinite if it does not run on the machine."""
        try:
            simulation = self._simulation(way)
            if simulation is None or (self.scratch and not self.scratch.allows(simulation.program, size)):
                return math.inf
            return simulation.run(size).time_s
        except errors.UserError:  # too many threadblocks, or no path between two ranks
            return math.inf

    def _simulated(self, way: Way) -> Simulation | None:
        """The simulation of a program; None if it cannot be compiled for this machine."""
        try:
            return Simulation(self.program(way, in_place=self.in_place), self._platform(*way.fifo))
        except errors.UserError:
            return None

    def program(self, way: Way, *, in_place: bool) -> Program:
        """Compiles a schedule in a way.

        Raises:
            gc3.UserError: It does not work in place, or needs more threadblocks than the machine has.
        """
        result = self.results[way.schedule]
        if way.instances * way.parts * result.schedule.send_count > _MOST_SENDS:
            raise errors.error("BadArgument", f"'{result.name}' with {way.instances} instances is too large")
        program = compile_program(
            replace(result, lanes=way.lanes, order=way.order, parts=way.parts).algorithm(),
            instances=way.instances,
            protocol=way.protocol,
            in_place=in_place,
            max_threadblocks=self._threadblocks,
            scratch=0 if way.again else result.scratch,
        )
        self._check_target(program)
        return program

    def _check_target(self, program: Program) -> None:
        """Refuses a program that the target cannot execute."""
        if self._target is not None:
            for_target.prove(program.core, self._target, dialect_of(self._target))

    def rows(self, table: str, sizes: list[int], *, complete: bool = True) -> list[dict[str, Any]]:
        """Returns the rows of a table for what was found, and writes the programs that they name beside it.

        If the search was not `complete`, there is no time to simulate programs at the sizes that others were found for.

        Every program is proven before. Ranges of sizes have few programs: one that is within half a percent of the
        fastest serves more than its own size, unless the library's is faster there.
        """
        known = [self.found[size] for size in sizes if size in self.found and self.found[size].time_s < math.inf]
        specs: dict[Way, Spec] = {}
        for way in dict.fromkeys(each.way for each in known if each.way is not None):
            specs[way] = self._written(way, table, in_place=self.in_place)
        ways = {spec: way for way, spec in specs.items()}
        points = [self._point(each, specs, complete=complete) for each in known]
        found = ranges(points, sizes, change=SIMULATED_CHANGE, other=0.0)
        return [row for each in found for row in self._rows(each, ways, table)]

    def _rows(self, served: Range, ways: dict[Spec, Way], table: str) -> Iterator[dict[str, Any]]:
        """The row of a range, and one for the other mode, if its program is a file."""
        way = ways.get(served.spec)
        row = served.row() | {"note": self._explained(served, way)}
        rooted = {"root": self.root} if collectives.get(self.collective).rooted else {}
        if way is None:
            yield row
            return
        yield row | rooted
        try:
            program = self.program(way, in_place=not self.in_place)
            if self.scratch and not all(self.scratch.allows(program.core, point.size) for point in served.points):
                return
            other = self._written(way, table, in_place=not self.in_place)
        except errors.UserError:
            return
        yield row | rooted | {"in_place": not self.in_place, "program": other.data()}

    def _written(self, way: Way, table: str, *, in_place: bool) -> Spec:
        program = self.program(way, in_place=in_place)
        slots, slot_bytes = way.fifo
        verify(program, slots=slots)
        return Spec(programs.write(program, table), (), slots=slots, slot_bytes=slot_bytes)

    def _point(self, each: Fastest, specs: dict[Way, Spec], *, complete: bool) -> Measured:
        times = [] if each.library is None else [(each.library, each.library_s)]
        for way, spec in specs.items():
            took = self._times.get((way, each.size))
            if took is None and complete:
                took = self._times[way, each.size] = self.seconds(way, each.size)
            if took is not None and took < each.library_s:
                times.append((spec, took))
        ranks = self.platform.topology.rank_count
        in_us = tuple((spec, 1e6 * took) for spec, took in times)
        return Measured(self.collective, ranks, each.size, self.in_place, in_us, each.library, len(times))

    def _explained(self, served: Range, way: Way | None) -> str:
        """The note of a row."""
        first, last = served.points[0], served.points[-1]
        mode = "in place" if self.in_place else "out of place"
        parts = [f"predicted {mode} for {self.platform.topology.name}"]
        if way is not None:
            parts.append(self.describe(way))
        for point in dict.fromkeys((first, last)):
            took = dict(point.times_us)[served.spec]
            than = "" if point.default in (None, served.spec) else f" (library {point.default_us:.4g})"
            parts.append(f"{took:.4g} us{than} at {point.size} B")
        return ", ".join(parts)

    def describe(self, way: Way) -> str:
        """Returns what a way makes, for people."""
        result = self.results[way.schedule]
        chunks, steps, rounds = result.cost
        lanes = f"{counted(way.lanes, 'lane')}, " if way.lanes else ""
        instances = counted(way.instances, "instance")
        parts = f"{counted(way.parts, 'part')} inside nodes, " if way.parts > 1 else ""
        order = "" if way.order == "depth" else f", in the order of steps{', gathered' * (way.order == 'gathered')}"
        slots, slot_bytes = way.fifo
        fifo = f", {slots} slots of {slot_bytes} B" if slots else ""
        made = f"synthesized (C={chunks}, S={steps}, R={rounds}), {lanes}{parts}{instances}"
        return f"{made}, {way.protocol}{fifo}{order}"

    def scratch_share(self, found: Fastest) -> Fraction:
        """Returns the scratch memory that the fastest program needs on a rank, as a part of S."""
        if found.way is not None:
            return share(self.program(found.way, in_place=self.in_place).core)
        assert found.spec is not None  # noqa: S101 - it is one or the other
        ranks = self.platform.topology.rank_count
        return share(found.spec.compile(ranks, in_place=self.in_place, prove=False).core)


def _beside(values: tuple[int, ...], value: int) -> tuple[int, int]:
    """The values before and after one of them, or itself at an end."""
    at = values.index(value)
    return values[max(at - 1, 0)], values[min(at + 1, len(values) - 1)]
