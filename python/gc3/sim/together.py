"""Several programs on one machine at once, on ranks that may overlap.

Their transfers share links and NICs, one slice after the other. A GPU holds only so many threadblocks: a rank's part of
a program begins when the threadblocks of all others that run there leave room for it, in the order of the calls.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from gc3 import _core, errors
from gc3.sim.platform import Platform
from gc3.sim.predict import UNDISTURBED, Disturbance, Simulation

NEVER = 1 << 62  # later than every time in picoseconds
LONGEST = 10**18  # picoseconds, of all times that are simulated
_PS = 1e12


def picoseconds(seconds: float) -> int:
    """Returns the nearest time of the simulator."""
    return round(seconds * _PS)


def moment(seconds: float) -> int:
    """Returns the nearest time of the simulator, at which a rank begins.

    Raises:
        gc3.UserError: It is later than all times that are simulated.
    """
    if not seconds * _PS <= LONGEST:
        raise errors.error("BadSimulation", f"a rank begins after {seconds:g} s; the most is {LONGEST / _PS:.0f} s")
    return picoseconds(seconds)


class Session:
    """A machine on which ranks call programs at times that may depend on the ends of others.

    Times are whole picoseconds.
    """

    def __init__(self, on: Platform, disturbance: Disturbance = UNDISTURBED) -> None:
        """Takes an idle machine, and the ranks of it that are slow."""
        self._on = on
        self._slowdown = disturbance.lists(on.topology.rank_count)[1]
        most = max(len(on.resource_names(protocol)) for protocol in on.parameters.protocols)
        self._core = _core.SimTogether(most)
        self._calls: list[Simulation] = []
        self._begins: list[tuple[int, int, int]] = []  # time, call, rank of the program: a heap
        self._resident = [0] * on.topology.rank_count  # threadblocks by rank of the machine
        self._waiting: list[list[tuple[int, int]]] = [[] for _ in self._resident]  # call, rank of the program

    @property
    def use(self) -> dict[str, tuple[float, int]]:
        """The busy seconds and the carried bytes of each resource of the machine, by calls that have ended."""
        names = [resource.name for resource in self._on.topology.all_resources]
        return {name: use for name, use in zip(names, self._core.use, strict=False) if use[1]}

    @property
    def slice_ops(self) -> int:
        """Slices of instructions that were simulated, of calls that have ended."""
        return self._core.slice_ops

    def add(self, simulation: Simulation, size: int, dtype: str = "float32") -> int:
        """Returns the number of a new call, whose ranks do not run yet.

        Raises:
            gc3.UserError: A GPU does not hold its threadblocks, or ranks of the machine share processors.
        """
        simulation.check_resident()
        slowdown = [self._slowdown[rank] for rank in simulation.ranks] if self._slowdown else []
        call = simulation.call(size, dtype)
        self._calls.append(simulation)
        return self._core.add(simulation.whole, call.chunk_bytes, call.protocol, slowdown, call.itemsize, call.counts)

    def begin(self, call: int, rank: int, at: int) -> None:
        """The program's `rank` makes its call at a time, which has not passed yet; its launch takes time, too."""
        launch = picoseconds(self._calls[call].platform.parameters.launch_s)
        heapq.heappush(self._begins, (at + launch, call, rank))

    def advance(self, limit: int = NEVER) -> tuple[int, int, int] | None:
        """Simulates until a rank ends, and returns the time, the call and the program's rank.

        Returns None if no rank ends up to `limit`, or before others make their calls.

        Raises:
            gc3.UserError: Programs wait for each other forever.
        """
        while True:
            next_begin = self._begins[0][0] if self._begins else NEVER
            found = self._core.advance(min(limit, next_begin))
            if found is not None:
                self._leave(*found)
                return found
            if next_begin >= NEVER and limit >= NEVER and any(self._waiting):
                raise self._stuck()
            if next_begin > limit or next_begin >= NEVER:
                return None
            at, call, rank = heapq.heappop(self._begins)
            self._waiting[self._calls[call].ranks[rank]].append((call, rank))
            self._admit(self._calls[call].ranks[rank], at)

    def _leave(self, at: int, call: int, rank: int) -> None:
        place = self._calls[call].ranks[rank]
        self._resident[place] -= self._calls[call].threadblocks[rank]
        self._admit(place, at)

    def _admit(self, place: int, at: int) -> None:
        """Launches what waits on a rank of the machine, in order, as far as there is room."""
        limit, waiting = self._on.parameters.threadblocks, self._waiting[place]
        while waiting:
            call, rank = waiting[0]
            needed = self._calls[call].threadblocks[rank]
            if limit and self._resident[place] and self._resident[place] + needed > limit:
                return
            waiting.pop(0)
            self._resident[place] += needed
            self._core.launch(call, rank, at)

    def _stuck(self) -> errors.Gc3Error:
        place = next(place for place, waiting in enumerate(self._waiting) if waiting)
        call, _ = self._waiting[place][0]
        return errors.error(
            "SimulatedDeadlock",
            f"on rank {place} '{self._calls[call].program.name}' waits for room beside {self._resident[place]} "
            f"threadblocks, which wait for ranks that wait likewise; a GPU of preset "
            f"'{self._on.parameters.name}' holds {self._on.parameters.threadblocks}",
        )


@dataclass(frozen=True, slots=True)
class Part:
    """One of several programs.

    Attributes:
        simulation: The program on its ranks of the machine.
        size: S in bytes.
        start_s: Seconds after which its ranks make the call.
    """

    simulation: Simulation
    size: int
    start_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Shared:
    """The result for one of several programs."""

    size: int  # S in bytes, rounded down to whole elements
    start_s: float  # seconds from the beginning until its ranks made the call
    alone_s: float  # seconds that the call takes alone
    together_s: float  # seconds that it takes with the others, from `start_s` until its last rank is done

    @property
    def factor(self) -> float:
        """How many times as long it takes with the others."""
        return self.together_s / self.alone_s if self.alone_s else 1.0


@dataclass(frozen=True, slots=True)
class Together:
    """Several programs that ran at once.

    Attributes:
        parts: In the order in which they were given.
        time_s: Seconds until all are done.
        use: The busy seconds and the carried bytes of each resource of the machine.
    """

    parts: tuple[Shared, ...]
    time_s: float
    use: dict[str, tuple[float, int]]

    @property
    def busiest(self) -> tuple[str, float]:
        """The resource that is busy for longest, and these seconds; empty and 0 where nothing is sent."""
        name, (busy, _) = max(self.use.items(), key=lambda item: item[1][0], default=("", (0.0, 0)))
        return name, busy


def together(
    on: Platform, parts: Sequence[Part], *, dtype: str = "float32", disturbance: Disturbance = UNDISTURBED
) -> Together:
    """Returns the times of programs that run at once, and of each of them alone.

    Args:
        on: The machine of all of them.
        parts: The programs, of any protocols, on any ranks.
        dtype: The data type, which matters to rounding only.
        disturbance: Ranks of the machine that are slow, or call late.

    Raises:
        gc3.UserError: A GPU does not hold the threadblocks of a program, programs wait for each other forever, or
            ranks of the machine share processors.

    >>> import gc3
    >>> from gc3 import sim
    >>> from gc3.algorithms import load as algorithm
    >>> on = sim.platform("ndv4")
    >>> ring = sim.Simulation(gc3.compile(algorithm("ring_allreduce"), R=8, instances=24), on)
    >>> both = together(on, [Part(ring, 1 << 26), Part(ring, 1 << 26)])
    >>> 1.5 < both.parts[0].factor < 2.1
    True
    """
    delays, _ = disturbance.lists(on.topology.rank_count)
    session = Session(on, disturbance)
    starts = [moment(part.start_s) for part in parts]
    for part, start in zip(parts, starts, strict=True):
        call = session.add(part.simulation, part.size, dtype)
        for rank, place in enumerate(part.simulation.ranks):
            session.begin(call, rank, start + (moment(delays[place]) if delays else 0))
    ends = list(starts)
    while (found := session.advance()) is not None:
        at, call, _ = found
        ends[call] = max(ends[call], at)
    return Together(
        tuple(
            Shared(
                part.simulation.fit(part.size, dtype)[0],
                part.start_s,
                part.simulation.run(part.size, dtype=dtype, disturbance=_own(disturbance, part.simulation)).time_s,
                (end - start) / _PS,
            )
            for part, start, end in zip(parts, starts, ends, strict=True)
        ),
        max(ends, default=0) / _PS,
        session.use,
    )


def _own(disturbance: Disturbance, simulation: Simulation) -> Disturbance:
    """The disturbance by the ranks of a program."""
    number = {place: rank for rank, place in enumerate(simulation.ranks)}
    return Disturbance(
        {number[place]: s for place, s in disturbance.delay_s.items() if place in number},
        {number[place]: f for place, f in disturbance.slowdown.items() if place in number},
    )
