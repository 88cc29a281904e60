"""The lower bound of the machine's memory on the time of a collective.

S is the size of the largest buffer of a rank in bytes, n the number of ranks on one host. Any algorithm must move at
least this through memory: each distinct input once, each output once. Buffers in between are not counted, because they
can stay in a cache.

| Collective | Read | Written |
|---|---|---|
| allreduce | n S | n S |
| allgather | S | n S |
| reducescatter | n S | S |
| alltoall | n S | n S |
| broadcast | S | (n - 1) S |
| oneway, window: a message | S | S |

How long that takes is measured: threads that share all buffers and never wait for each other, one for each rank or
core, whichever are fewer, make the same reads, additions and writes on buffers of the same size, with stores that pass
by the caches or with ordinary ones, whichever are faster.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gc3 import _core

_REPETITIONS = 3
_PROCESSORS = Path("/sys/devices/system/cpu")
_FACTS = ("type", "level", "shared_cpu_list", "size")
_UNKNOWN = 128 << 20  # where the system does not say


def caches(processors: Path = _PROCESSORS) -> int:
    """Returns the bytes of all caches for data of this machine, by its sysfs; 128 MiB where that is silent."""
    found: dict[tuple[str, str, str], int] = {}
    for folder in processors.glob("cpu[0-9]*/cache/index[0-9]*"):
        try:
            kind, level, shared, size = ((folder / name).read_text().strip() for name in _FACTS)
        except OSError:
            continue
        if kind != "Instruction":
            found[kind, level, shared] = int(size[:-1]) << {"K": 10, "M": 20, "G": 30}[size[-1]]
    return sum(found.values()) or _UNKNOWN


@dataclass(frozen=True, slots=True)
class Traffic:
    """`size` bytes read from each of `sources` buffers, added up, and written to each of `targets` buffers."""

    sources: int
    targets: int
    size: int

    @property
    def moved(self) -> int:
        """Bytes read and written."""
        return (self.sources + self.targets) * self.size


def traffic(collective: str, ranks: int, size: int) -> Traffic:
    """Returns the least bytes that a collective must read and write.

    >>> traffic("allreduce", 2, 1000).moved, traffic("broadcast", 4, 1000).moved
    (4000, 4000)
    """
    return {
        "allreduce": Traffic(ranks, ranks, size),
        "allgather": Traffic(1, ranks, size),
        "reducescatter": Traffic(ranks, 1, size),
        "alltoall": Traffic(1, 1, ranks * size),
        "broadcast": Traffic(1, ranks - 1, size),
        "oneway": Traffic(1, 1, size),
        "window": Traffic(1, 1, size),
    }[collective]


class Bound:
    """Buffers of such traffic, and the time that it takes."""

    def __init__(self, what: Traffic, threads: int) -> None:
        """Allocates the memory."""
        self.moved = what.moved
        self._core = _core.MemoryBound(what.sources, what.targets, what.size, threads)

    def seconds(self) -> float:
        """Measures the time."""
        return self._core.seconds(_REPETITIONS)
