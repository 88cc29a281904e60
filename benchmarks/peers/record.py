"""Converts the results to plain data and back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from types import MappingProxyType
from typing import Any

from gc3.runtime.measure import machine
from peers.contest import Contest, Point, Sample
from peers.summary import summarize


def point_data(point: Point) -> dict[str, Any]:
    """Returns a point as plain data, with derived values."""
    return {
        "collective": point.collective,
        "ranks": point.ranks,
        "size": point.size,
        "times": {name: asdict(sample) for name, sample in point.times.items()},
        "peers": {name: peer for name, peer in point.peers.items() if name in point.times},
        "bound_us": point.bound_us,
        "moved": point.moved,
        "best_peer": point.best(),
        "speedup": point.speedup(),
        "share": point.share,
    }


def document(contest: Contest, points: Iterable[Point]) -> dict[str, Any]:
    """Returns a whole comparison as plain data."""
    found = list(points)
    return {
        "machine": machine(),
        "settings": asdict(contest.plan),
        "libraries": {library.name: library.version for library in contest.libraries},
        "missing": {missing.name: missing.why for missing in contest.missing},
        "failed": dict(contest.failed),
        "points": [point_data(point) for point in found],
        "summary": asdict(summarize(found)),
    }


def points(data: Any) -> list[Point]:
    """Returns the points of a document."""
    return [_point(point) for point in data["points"]]


def _point(data: Any) -> Point:
    times: dict[str, Sample] = {}
    for name, sample in data["times"].items():
        rounds = tuple(sample["rounds_us"])
        times[name] = Sample(sample["median_us"], sample["min_us"], sample["iterations"], rounds)
    fixed = MappingProxyType(times), MappingProxyType(data["peers"])
    return Point(data["collective"], data["ranks"], data["size"], *fixed, data["bound_us"], data["moved"])
