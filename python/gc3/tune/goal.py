"""What to tune, and what was found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gc3 import collectives, errors
from gc3.comm.spec import Spec
from gc3.tune.space import digest

if TYPE_CHECKING:
    from gc3.comm.selection import Row
    from gc3.tune.hosts import HostTimer
    from gc3.tune.point import Place


@dataclass(frozen=True, slots=True)
class Own:
    """An algorithm that is not in the library, or the program of a row.

    Attributes:
        spec: PATH.py:FUNCTION, or the program in words.
        collective: Its collective.
        version: Differs after what it compiles to has changed.
        ranks: The number of ranks that this version is for; 0: any.
        condition: Of a custom collective: see `gc3.collectives.condition`.
    """

    spec: str
    collective: str
    version: str
    ranks: int = 0
    condition: str = ""


@dataclass(frozen=True, slots=True)
class Goal:
    """What to tune.

    Attributes:
        collectives: Names.
        ranks: Numbers of ranks.
        sizes: S in bytes, ascending.
        seconds: Approximate time for one turn of a finalist.
        time_limit: Seconds for the whole search; None: no limit.
        engine: What ranks are when measured: "processes" or "threads"; or "sim".
        also: Rows of tables whose programs are tried, too.
        own: Further algorithms that are tried.
        skews: Of the blocks: 1 are equal blocks; others are measured where the collective has a v-form.
        hosts: Where ranks are that somebody has started on several hosts, and who times them; None: on this one.
    """

    collectives: tuple[str, ...]
    ranks: tuple[int, ...]
    sizes: tuple[int, ...]
    seconds: float = 0.02
    time_limit: float | None = None
    engine: str = "processes"
    also: tuple[Row, ...] = ()
    own: tuple[Own, ...] = ()
    skews: tuple[float, ...] = (1.0,)
    hosts: HostTimer | None = None

    def own_of(self, collective: str, ranks: int) -> tuple[Own, ...]:
        """Returns the further algorithms of a collective for a number of ranks."""
        return tuple(own for own in self.own if own.collective == collective and own.ranks in (0, ranks))

    def beside_the_library(self, collective: str, ranks: int, *, in_place: bool) -> tuple[Own, ...]:
        """Returns the same with the programs of rows, as a point says what was tried there."""
        further = self.further(collective, ranks, in_place=in_place)
        rows = (Own(str(spec), collective, _version(spec, ranks, in_place=in_place), ranks) for spec in further)
        return (*self.own_of(collective, ranks), *rows)

    def condition_of(self, collective: str, ranks: int) -> str:
        """Returns that of a custom collective, whose algorithms are all the user's; "": it is built in."""
        return next((own.condition for own in self.own_of(collective, ranks)), "")

    def further(self, collective: str, ranks: int, *, in_place: bool) -> tuple[Spec, ...]:
        """Returns the programs of the rows that serve such calls."""
        return tuple(
            row.spec
            for row in self.also
            if (row.collective, row.condition) == (collective, self.condition_of(collective, ranks))
            and row.limits.ranks[0] <= ranks
            and (row.limits.ranks[1] is None or ranks <= row.limits.ranks[1])
            and row.limits.in_place in (None, in_place)
            and not row.limits.root
        )

    def skews_of(self, collective: str, ranks: int) -> tuple[float, ...]:
        """Returns those that calls of a collective can have."""
        if collective not in collectives.BUILTIN:
            return (1.0,)
        most = collectives.get(collective).model(ranks).v_counts
        return tuple(skew for skew in self.skews if skew <= max(most, 1))


@dataclass(frozen=True, slots=True)
class Measured:
    """The finalists at one point.

    Attributes:
        collective: Name.
        ranks: Number of ranks.
        size: S in bytes.
        in_place: The mode it was measured in.
        times_us: The time of each finalist, the winner's first: see `gc3.tune.race.Outcome`. With a simulation, in the
            order of candidates.
        default: The program of the default table; None if it cannot be timed, or the machine is simulated.
        tried: Number of candidates that were measured briefly, or simulated.
        brief: Whether a time limit cut the measurement short, or there are further algorithms now.
        own: The algorithms and the programs of rows beside the library's that were tried.
        reference: With a simulation: what else serves such calls on that machine, such as NCCL, and its time in us.
        skew: Of the blocks; 1: equal blocks.
        intervals_us: The 95 % intervals of the times; None: of too few turns. Empty with a simulation.
        within: Any other program is faster than the best by at most this, at 95 % each: 0.01 is 1 %. None: not known.
        registered_us: The times on registered memory: of the best program, then of one-sided ones; empty: not measured.
    """

    collective: str
    ranks: int
    size: int
    in_place: bool
    times_us: tuple[tuple[Spec, float], ...]
    default: Spec | None
    tried: int
    brief: bool = False
    own: tuple[Own, ...] = ()
    reference: tuple[str, float] | None = None
    skew: float = 1.0
    intervals_us: tuple[tuple[float, float] | None, ...] = ()
    within: float | None = None
    registered_us: tuple[tuple[Spec, float], ...] = ()

    @property
    def condition(self) -> str:
        """That of a custom collective; "": it is built in."""
        return next((own.condition for own in self.own if own.condition), "")

    @property
    def place(self) -> Place:
        """The place of the point."""
        return self.collective, self.ranks, self.size, self.in_place, self.skew

    @property
    def best(self) -> tuple[Spec, float]:
        """The fastest program; the simplest among equals."""
        return min(self.times_us, key=lambda pair: pair[1])

    def interval_of(self, spec: Spec) -> tuple[float, float] | None:
        """The 95 % interval of the time of a finalist; None if it is not known."""
        specs = [each for each, _ in self.times_us]
        return self.intervals_us[specs.index(spec)] if self.intervals_us else None

    @property
    def gain(self) -> tuple[float, float, float] | None:
        """How many times as fast as the default table's program the best one is, with the 95 % interval of that.

        It is the ratio of their times in the same rounds. None: there is no such program, or there were too few rounds.
        """
        interval = None if self.default is None else self.interval_of(self.default)
        if interval is None or self.default_us is None:
            return None
        best = self.best[1]
        return self.default_us / best, interval[0] / best, interval[1] / best

    @property
    def default_us(self) -> float | None:
        """The time of the default table's program."""
        return None if self.default is None else dict(self.times_us)[self.default]


@dataclass(frozen=True, slots=True)
class Found:
    """The results of a search so far, finished or not.

    Attributes:
        points: By number of ranks, collective and size, in the order of the goal.
        failed: Candidates that made their ranks fail, with the messages.
        finished: Whether every point has been measured, and none briefly.
    """

    points: tuple[Measured, ...]
    failed: dict[str, str]
    finished: bool


def _version(spec: Spec, ranks: int, *, in_place: bool) -> str:
    """The hash of what a program is now; that of a file is in its name."""
    try:
        return "" if spec.is_file else digest([spec.compiled.compile(ranks, in_place=in_place, prove=False)])
    except errors.UserError:  # it is for other calls
        return ""
