"""What was measured for one collective, number of ranks and size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

OURS = "gc3"
PYTHON = "gc3 python"
FOLLOWER = "mpi4py"  # the library of another peer, called from Python: never the best of all
COLLECTIVES = ("allreduce", "allgather", "reducescatter", "alltoall", "broadcast")
MESSAGES = ("oneway", "window")  # between two ranks, in C and C++ only
REUSED, ROTATED, ROWS, WAITS = PATTERNS = ("reused", "rotated", "rows", "waits")
CONDITIONS = ("quiet", "sessions", "loaded")


def has_messages(names: Iterable[str]) -> bool:
    """Returns whether some of what is measured are messages."""
    return not set(names).isdisjoint(MESSAGES)


@dataclass(frozen=True, slots=True)
class Sample:
    """The times of one contender at one point."""

    median_us: float  # median over all iterations of all rounds
    min_us: float  # the fastest iteration
    iterations: int  # how many there were
    rounds_us: tuple[float, ...]  # the median of each round
    p95_us: float | None = None  # 95 % of the iterations took no longer; None in old results
    p99_us: float | None = None  # the same for 99 %
    cpu_us: float | None = None  # processor time of all ranks for a call, if measured


def percentile(numbers: Sequence[float], percent: int) -> float:
    """Returns the smallest of the numbers that so many percent of them do not exceed.

    >>> percentile([4, 1, 3, 2], 50), percentile(range(1, 101), 99), percentile([7], 95)
    (2, 99, 7)
    """
    return sorted(numbers)[-(-percent * len(numbers) // 100) - 1]


@dataclass(frozen=True, slots=True)
class Point:
    """One collective, number of ranks and size.

    Attributes:
        times: By contender: "gc3", "gc3 python" and the settings of the peers, such as "openmpi ucx".
        peers: The library of each setting.
        bound_us: What the machine's memory allows.
        moved: Bytes that must be read and written for that.
        rotated: As times, with rotated buffers; empty where one call's buffers fill the working set.
        rows: As times, for calls that follow each other without barriers; small sizes only.
        waits: As times, with waits between the calls; of each peer, the best setting.
        version: The version of gc3.
    """

    collective: str
    ranks: int
    size: int
    times: Mapping[str, Sample]
    peers: Mapping[str, str]
    bound_us: float
    moved: int
    rotated: Mapping[str, Sample] = field(default_factory=dict[str, Sample])
    rows: Mapping[str, Sample] = field(default_factory=dict[str, Sample])
    waits: Mapping[str, Sample] = field(default_factory=dict[str, Sample])
    version: str = ""

    def of(self, pattern: str) -> Point:
        """Returns the point with the times of a pattern as its times; rotated ones where there are any."""
        times = {REUSED: self.times, ROTATED: self.rotated or self.times, ROWS: self.rows, WAITS: self.waits}
        return replace(self, times=times[pattern])

    def best(self, peer: str | None = None) -> str | None:
        """Returns the fastest setting of a peer, or of all; None if none was measured."""
        found = [
            name
            for name in self.times
            if name in self.peers and (self.peers[name] == peer if peer else self.peers[name] != FOLLOWER)
        ]
        return min(found, key=lambda name: self.times[name].median_us, default=None)

    def speedup(self, peer: str | None = None, ours: str = OURS) -> float | None:
        """Returns how many times faster gc3 is than the best of a peer, or of all."""
        best = self.best(peer)
        return (
            None if best is None or ours not in self.times else self.times[best].median_us / self.times[ours].median_us
        )

    def keeps_p99(self, *, of_all: bool = False) -> bool | None:
        """Returns whether gc3's p99 is no worse than that of the best peer, or than the least one of all settings."""
        best, ours = self.best(), self.times[OURS].p99_us
        if best is None or ours is None:
            return None
        names = [name for name, peer in self.peers.items() if peer != FOLLOWER and name in self.times]
        theirs = [p99 for name in (names if of_all else [best]) if (p99 := self.times[name].p99_us) is not None]
        return ours <= min(theirs) if theirs else None

    @property
    def share(self) -> float:
        """The part of gc3's time that the memory bound explains."""
        return self.bound_us / self.times[OURS].median_us
