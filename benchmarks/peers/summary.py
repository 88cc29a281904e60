"""A summary of many points."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from peers.points import OURS, PYTHON, Point

SMALL = 1 << 20  # the largest size at which the number of copies matters less than the number of waits
LARGE = 16 << 20  # the smallest size that no cache holds
FROM_PYTHON = ("gloo", "mpi4py")  # peers that are called from Python


def geometric_mean(numbers: Iterable[float]) -> float | None:
    """Returns the geometric mean; None of nothing.

    >>> geometric_mean([2, 8])
    4.0
    """
    found = list(numbers)
    return statistics.geometric_mean(found) if found else None


@dataclass(frozen=True, slots=True)
class Summary:
    """The comparison in a few numbers; None if there is nothing to compare."""

    points: int  # how many points have a peer
    speedup: float | None  # geometric mean of how many times faster gc3 is than the best peer
    without_reducescatter: float | None  # the same for all other collectives
    by_ranks: dict[int, float]  # the same for each number of ranks
    by_collective: dict[str, float]  # the same for each collective
    by_peer: dict[str, float]  # the same against each library alone
    # gc3 from Python against each library that is called from Python: the mean, the mean up to 1 MiB and the smallest
    # speed-up up to 1 MiB
    from_python: dict[str, tuple[float | None, float | None, float | None]]
    slowest: float | None  # the smallest speed-up
    lost: int  # how many points a peer wins
    p99_kept: float | None  # share of the points where gc3's p99 is no worse than that of the best peer
    p99_least: float | None  # share of the points where it is no worse than the least p99 of all settings
    python_cost_us: float | None  # median of what the Python interface adds at the smallest size
    share: float | None  # geometric mean of the share of the memory bound at large sizes
    least_share: float | None  # the smallest of those


def summarize(points: Sequence[Point]) -> Summary:
    """Returns the summary of `points`."""
    speedups = [(p, s) for p in points if (s := p.speedup()) is not None]
    smallest = min((p.size for p in points), default=0)
    extra = sorted(
        p.times[PYTHON].median_us - p.times[OURS].median_us for p in points if p.size == smallest and PYTHON in p.times
    )
    shares = [p.share for p in points if p.size >= LARGE]

    def means(key: str) -> dict[Any, float]:
        groups: dict[Any, list[float]] = {}
        for point, speedup in speedups:
            groups.setdefault(getattr(point, key), []).append(speedup)
        return {name: mean for name, group in groups.items() if (mean := geometric_mean(group)) is not None}

    by_peer: dict[str, float] = {}
    from_python: dict[str, tuple[float | None, float | None, float | None]] = {}
    for peer in sorted({peer for p in points for name, peer in p.peers.items() if name in p.times}):
        mean = geometric_mean(s for p in points if (s := p.speedup(peer)) is not None)
        if mean is not None:
            by_peer[peer] = mean
        if peer in FROM_PYTHON:
            alike = [(p.size, s) for p in points if (s := p.speedup(peer, PYTHON)) is not None]
            small = [s for size, s in alike if size <= SMALL]
            from_python[peer] = geometric_mean(s for _, s in alike), geometric_mean(small), min(small, default=None)
    return Summary(
        len(speedups),
        geometric_mean(s for _, s in speedups),
        geometric_mean(s for p, s in speedups if p.collective != "reducescatter"),
        means("ranks"),
        means("collective"),
        by_peer,
        from_python,
        min((s for _, s in speedups), default=None),
        sum(s < 1 for _, s in speedups),
        _share(points, lambda p: p.keeps_p99()),
        _share(points, lambda p: p.keeps_p99(of_all=True)),
        extra[len(extra) // 2] if extra else None,
        geometric_mean(shares),
        min(shares, default=None),
    )


def _share(points: Sequence[Point], holds: Callable[[Point], bool | None]) -> float | None:
    found = [held for p in points if (held := holds(p)) is not None]
    return sum(found) / len(found) if found else None


def worst(points: Sequence[Point], most: int | None = 10) -> list[Point]:
    """Returns the points a peer wins, the clearest first; `most` of them."""
    lost = [(s, p) for p in points if (s := p.speedup()) is not None and s < 1]
    return [p for _, p in sorted(lost, key=lambda pair: pair[0])[:most]]
