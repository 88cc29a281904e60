"""The fastest programs for a collective on a machine, as far as the simulator can tell: `gc3 synth best`.

Candidates are the library's programs and synthesized schedules, and one search chooses among both
(`gc3.tune.guided_search`): a schedule becomes a program in many ways, as an algorithm does with several channels,
instances and protocols. A few ways of every schedule are simulated first, since only the best schedules are searched.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from typing import Any

from gc3 import collectives, datatypes, errors, synth
from gc3.comm import programs
from gc3.comm.spec import Spec
from gc3.runtime.program import Program, verify
from gc3.runtime.scratch import ScratchLimit, share
from gc3.sim import Platform, trust
from gc3.support.alarm import alarm
from gc3.support.words import counted
from gc3.tune import simulated
from gc3.tune.goal import Measured
from gc3.tune.guided_search import MOST, Search
from gc3.tune.ranges import SIMULATED_CHANGE, Range, ranges
from gc3.tune.schedules import schedules
from gc3.tune.simulated import choose, simplest
from gc3.tune.space import FIFOS

_SEARCHED = 3  # schedules of a size
_MOST = 180  # simulations of a size after that
_HOPELESS = 2.0  # a schedule whose first programs take so many times as long as the best one gets no further ones
_SCHEDULES = 0.3  # of the seconds of a search: for finding schedules
_SECONDS = 60.0  # at most for that
_LIBRARY = 0.6  # of a search: for the library, where programs of many ranks take all that there is
_GRACE = 0.1  # seconds beyond the limit for code that checks the time itself
_GAIN = 0.99  # a synthesized program must be faster than the library's by this factor to be worth a file

# The first programs of each schedule: see `Search.way`.
_SMALL_SIZE = 256 << 10
_SMALL: tuple[dict[str, Any], ...] = (
    {"order": "depth", "protocol": "LL"},
    {"order": "depth", "protocol": "LL", "instances": 4},
    {"order": "depth", "protocol": "LL128", "instances": 2},
)
_LARGE: tuple[dict[str, Any], ...] = (
    {"order": "gathered", "lanes": 1, "instances": 2, "slots": FIFOS[2][0], "slot_bytes": FIFOS[2][1]},
    {"order": "depth", "instances": 4},
    {"order": "depth", "lanes": 1, "instances": 4},
    {"order": "depth", "lanes": 2, "instances": 2},
    {"order": "depth", "lanes": 4},
    {"order": "gathered", "lanes": 1, "instances": 2},
    {"order": "gathered", "lanes": 1, "parts": 2},
    {"order": "steps", "protocol": "Copy"},
)


class Best:
    """The search for one collective on one machine.

    Attributes:
        found: What is known of each size: the fastest program, and as its default the library's, if there is one.
        schedules: By the names of their programs.
        searched: The sizes for which no search was cut short.
        without: Why there are no schedules; empty if there may be some.
    """

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
        self.found: dict[int, Measured] = {}
        self.searched: set[int] = set()
        self.schedules: dict[str, synth.Result | synth.OneRankResult] = {}
        self.without = ""
        self.scratch = scratch
        self._how: dict[str, Any] = {
            "in_place": self.in_place,
            "target": target,
            "threadblocks": min((n for n in (threadblocks, on.parameters.threadblocks) if n), default=0),
            "scratch": scratch,
            "protocols": self.protocols,
        }
        self._search = self._new({})

    def has(self, size: int) -> bool:
        """Returns whether a program was found for a size."""
        return size in self.found and bool(self.found[size].times_us)

    def add(self, schedule: synth.Result | synth.OneRankResult) -> None:
        """Adds a synthesized schedule to the candidates."""
        self.schedules[f"schedule {len(self.schedules)}"] = schedule

    def library(self, sizes: Iterable[int], begin: Callable[[str], None], deadline: float = math.inf) -> None:
        """Simulates the library's programs at these sizes, ascending, until a time of `time.monotonic`.

        One simulation of a very large size may take longer than all of the limit, and the search of one size, too.
        """
        search = self._new(None)

        def note(size: int, tried: list[tuple[Spec, float]], count: int) -> None:
            times = tuple((spec, 1e6 * took) for spec, took in ([simplest(tried)] if tried else []))
            place = self.collective, self.platform.topology.rank_count, size, self.in_place
            self.found[size] = Measured(*place, times, times[0][0] if times else None, count)

        try:
            with suppress(synth.TimeUp), alarm(deadline + _GRACE, synth.TimeUp):
                for found in choose(
                    search, sorted(sizes), "programs of the library", begin, lambda: time.monotonic() > deadline
                ):
                    note(*found)
        finally:  # a search of many ranks that is cut short has simulated some
            for size in sizes:
                if size not in self.found:
                    note(size, search.known(size), search.simulations(size))

    def synthesized(self, sizes: list[int], begin: Callable[[str], None], deadline: float = math.inf) -> None:
        """Looks for the fastest programs of the schedules, until a time of `time.monotonic`.

        First it simulates a few ways of every schedule at all sizes. The searches among all ways of the best ones come
        after that, at sizes that are far apart first.
        """
        search = self._search = self._new(self.schedules)
        known = self._open(sizes)
        for size, way in self._starts(known):
            begin(f"{counted(len(self.schedules), 'schedule')}, {size} B, {way.get('protocol', 'Simple')}")
            for name in self._promising(size):
                if time.monotonic() > deadline:
                    return
                for spec in search.ways(name, **way):
                    search.seconds(spec, size)
            self._note(size)
        best = {name for size in known for name in list(self._best(size))[:_SEARCHED]}
        search.keep(best)
        for size, *_ in choose(
            search, known, counted(len(best), "schedule"), begin, lambda: time.monotonic() > deadline
        ):
            self._note(size)
            self.searched.add(size)

    def run(
        self,
        solvers: synth.Solvers,
        seed: int,
        sizes: list[int],
        seconds: float,
        tell: Callable[[str], None],
        *,
        library: bool = True,
    ) -> None:
        """Does all of it in `seconds`; not `library`: the library's programs are known already."""
        begun = time.monotonic()

        def begin(what: str) -> None:
            tell(f"{self.collective}, {what}")

        many = self.platform.topology.most_pairs > synth.MOST_PAIRS
        if library:
            self.library(sizes, begin, begun + seconds * (_LIBRARY if many else 1.0))
        with suppress(synth.TimeUp), alarm(begun + seconds + _GRACE, synth.TimeUp):
            left = min(_SCHEDULES * (begun + seconds - time.monotonic()), _SECONDS)
            if many:
                begin("schedules from one rank's view")
                self._one_rank_schedules()
            elif self.collective in synth.NAMES and left > 0 and (some := self._open(sizes)):
                self._schedules(solvers, seed, some, left, begin)
            self.synthesized(sizes, begin, begun + seconds)

    def _one_rank_schedules(self) -> None:
        peers = self.platform.parameters.threadblocks
        try:
            for made in synth.one_rank_schedules(self.platform.topology, self.collective, peers=peers):
                self.add(made)
        except errors.UserError as problem:
            self.without = problem.message

    def _schedules(
        self, solvers: synth.Solvers, seed: int, sizes: list[int], seconds: float, begin: Callable[[str], None]
    ) -> None:
        """Finds the candidates; where scratch is limited in bytes, also those that may do for small sizes only."""
        network, end, limit = synth.Network.of(self.platform.topology), time.monotonic() + seconds, self.scratch
        if limit is None:
            shares: list[Fraction | None] = [None]
        else:
            shares = [limit.share()] if limit.of else [None, limit.share(max(sizes))]
        for number, most in enumerate(shares, 1):
            until = end - seconds * (1 - number / len(shares))
            session = synth.Session(network, solvers, until, seed, moving=False)
            task = synth.task_within(session, self.collective, self.root, most_scratch=most)
            for result in schedules(task, begin, self.platform, sizes):
                self.add(result)

    def _new(self, schedules: dict[str, synth.Result | synth.OneRankResult] | None) -> Search:
        on = self.platform
        most = MOST if schedules is None else _MOST
        root = 0 if schedules is None else self.root
        ranks = on.topology.rank_count
        return Search(self.collective, on, ranks, most=most, schedules=schedules, root=root, **self._how)

    def _open(self, sizes: Iterable[int]) -> list[int]:
        """The sizes at which a synthesized program may be faster than the library's by enough to be worth a file."""
        found = [size for size in sizes if size in self.found]
        known = {size: 1e-6 * (self.found[size].default_us or math.inf) for size in found}
        self.searched |= (closed := {size for size in found if _GAIN * known[size] <= self._search.least(size)})
        return [size for size in found if size not in closed]

    def _starts(self, sizes: list[int]) -> Iterator[tuple[int, dict[str, Any]]]:
        """The first programs of schedules, with the sizes that they are for."""
        for ways, served in (
            (_LARGE, [size for size in sizes if size > _SMALL_SIZE]),
            (_SMALL, [size for size in sizes if size <= _SMALL_SIZE]),
        ):
            allowed = [way for way in ways if way.get("protocol", "Simple") in self.protocols]
            yield from ((size, way) for way in allowed for size in served)

    def _best(self, size: int) -> dict[str, float]:
        """The seconds of each schedule so far, the fastest first."""
        found: dict[str, float] = {}
        for spec, took in self._search.known(size):
            found.setdefault(spec.algorithm, took)
        return found

    def _promising(self, size: int) -> list[str]:
        """The schedules of which no program runs yet, or one that is not much slower than the best one."""
        took = self._best(size)
        limit = _HOPELESS * min((*took.values(), *(1e-6 * us for _, us in self.found[size].times_us)), default=math.inf)
        return [name for name in self.schedules if took.get(name, limit) <= limit]

    def _note(self, size: int) -> None:
        """Takes the fastest program of the schedules, if it is worth a file."""
        point = self.found[size]
        library = () if point.default is None else ((point.default, point.default_us or 0.0),)
        for spec, took in self._search.known(size)[:1]:
            if all(1e6 * took < _GAIN * us for _, us in library):
                self.found[size] = replace(point, times_us=((spec, 1e6 * took), *library))

    def rows(self, table: str, sizes: list[int], *, complete: bool = True) -> list[dict[str, Any]]:
        """Returns the rows of a table for what was found, and writes the programs that they name beside it.

        If the search was not `complete`, there is no time to simulate programs at the sizes that others were found for.

        Every program is proven before. Ranges of sizes have few programs: one that is within half a percent of the
        fastest serves more than its own size, unless the library's is faster there.
        """
        known = [self.found[size] for size in sizes if self.has(size)]
        written = {
            spec: self._written(spec, table, in_place=self.in_place)
            for spec in dict.fromkeys(point.best[0] for point in known)
            if spec.algorithm in self.schedules
        }
        ways = {file: spec for spec, file in written.items()}
        points = [self._point(point, written, complete=complete) for point in known]
        found = ranges(points, sizes, change=SIMULATED_CHANGE, other=0.0)
        return [row for each in found for row in self._rows(each, ways, table)]

    def _rows(self, served: Range, ways: dict[Spec, Spec], table: str) -> Iterator[dict[str, Any]]:
        """The row of a range, and one for the other mode, if its program is a file."""
        way = ways.get(served.spec)
        row = served.row() | {"note": self._explained(served, way)}
        rooted = {"root": self.root} if collectives.get(self.collective).rooted else {}
        if way is None:
            yield row
            return
        yield row | rooted
        try:
            program = self._search.program(way, in_place=not self.in_place)
            if self.scratch and not all(self.scratch.allows(program.described, point.size) for point in served.points):
                return
            other = self._written(way, table, in_place=not self.in_place)
        except errors.UserError:
            return
        yield row | rooted | {"in_place": not self.in_place, "program": other.data()}

    def _written(self, way: Spec, table: str, *, in_place: bool) -> Spec:
        program = self._search.program(way, in_place=in_place)
        verify(program, slots=way.slots)
        return Spec(programs.write(program, table), (), slots=way.slots, slot_bytes=way.slot_bytes)

    def _point(self, point: Measured, written: dict[Spec, Spec], *, complete: bool) -> Measured:
        """A point with all programs that may serve it: the library's, and the files that are faster."""
        known = dict(self._search.known(point.size))
        library = () if point.default is None else ((point.default, point.default_us or 0.0),)
        times = list(library)
        for way, file in written.items():
            took = 1e6 * (known.get(way) or (self._search.seconds(way, point.size) if complete else math.inf))
            if all(took < us for _, us in library) and took < math.inf:
                times.append((file, took))
        return replace(point, times_us=tuple(times), tried=len(times))

    def _explained(self, served: Range, way: Spec | None) -> str:
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
        told = trust.told((p.size, simulated.worth(self.platform, p, way or served.spec)) for p in served.points)
        return "; ".join([", ".join(parts), *told])

    def describe(self, spec: Spec) -> str:
        """Returns what a program is, for people."""
        if spec.algorithm not in self.schedules:
            return str(spec)
        given = dict[str, Any](spec.parameters)
        chunks, steps, numbers = self.schedules[spec.algorithm].cost
        lanes = f"{counted(given['lanes'], 'lane')}, " if "lanes" in given else ""
        parts = f"{counted(given['parts'], 'part')} inside nodes, " if "parts" in given else ""
        orders = {"steps": ", in the order of steps", "gathered": ", in the order of steps, gathered"}
        fifo = f", {spec.slots} slots of {spec.slot_bytes} B" if spec.slots else ""
        made = f"synthesized (C={chunks}, S={steps}, R={numbers}), {lanes}{parts}{counted(spec.instances, 'instance')}"
        return f"{made}, {spec.protocol}{fifo}{orders.get(given.get('order', 'depth'), '')}"

    def scratch_share(self, spec: Spec) -> Fraction:
        """Returns the scratch memory that a program needs on a rank, as a part of S."""
        return share(self.program(spec).described)

    def program(self, spec: Spec) -> Program:
        """Returns the program of a choice that was found."""
        return self._search.program(spec, in_place=self.in_place)
