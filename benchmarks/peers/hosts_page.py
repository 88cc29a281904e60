"""The tables of docs/hosts_performance.md, which follow from the results of benchmarks/on_hosts.py."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from gc3.cli.sizes import format_size
from peers.page import filled, title
from peers.points import COLLECTIVES, OURS
from peers.summary import geometric_mean

SMALL = 64 << 10  # bytes; the goals call sizes up to this one small
LARGE = 8 << 20  # and from this one on large
_BOUND_AT = 16 << 20
_GBIT = 125e6  # bytes per second


def key_of(point: Mapping[str, Any]) -> tuple[Any, ...]:
    """Returns what a point is: hosts, ranks on each, rate, collective, size."""
    return tuple(point[name] for name in ("hosts", "ranks_per_host", "rate", "collective", "size"))


def reason_of(point: Mapping[str, Any]) -> str:
    """Returns the key under which a person writes why a point misses its goal."""
    return " ".join(str(word) for word in key_of(point))


def best(point: Mapping[str, Any]) -> str | None:
    """Returns the fastest setting of the peers; None if none was measured."""
    peers = [name for name in point["us"] if name != OURS]
    return min(peers, key=lambda name: point["us"][name][0], default=None)


def ratio(point: Mapping[str, Any], peer: str | None = None) -> float | None:
    """Returns how many times faster gc3 is than a peer, or than the best one."""
    peer = peer or best(point)
    if peer not in point["us"] or OURS not in point["us"]:
        return None
    return point["us"][peer][0] / point["us"][OURS][0]


def least_of(point: Mapping[str, Any]) -> float | None:
    """Returns the ratio that a point must reach; None: there is no goal for it alone."""
    if point["ranks_per_host"] == 1 and point["hosts"] == 2:  # noqa: PLR2004
        return 1.0
    return 0.8 if point["size"] <= SMALL else 1.8 if point["size"] >= LARGE else None


def cell(figures: Sequence[float] | None) -> str:
    """Returns the median and the 99 % of a library."""
    return "" if figures is None else f"{figures[0]:.0f} / {figures[1]:.0f}"


def page(text: str, machines: Sequence[Any]) -> str:
    """Returns the page with its tables made anew."""
    return filled(text, "on_hosts.py", {"goals": _each(machines, _goals), "results": _each(machines, _results)})


def _each(machines: Sequence[Any], lines: Callable[[Any], Iterable[str]]) -> Iterable[str]:
    if not machines:
        yield "No machine has recorded results yet."
    for number, data in enumerate(machines):
        versions = ", ".join(sorted({point["version"] for point in data["points"]}))
        yield from (*([""] if number else []), f"### {title(data)}", "", f"gc3 {versions}.", "", *lines(data))


def _places(points: Sequence[Any]) -> list[tuple[int, int]]:
    return sorted({(p["hosts"], p["ranks_per_host"]) for p in points})


def _goals(data: Any) -> Iterable[str]:
    yield "| Hosts x ranks | Points | What | Goal | Reached | |"
    yield "|---|---:|---|---:|---:|---|"
    for hosts, each in _places(data["points"]):
        points = [p for p in data["points"] if (p["hosts"], p["ranks_per_host"]) == (hosts, each)]
        # On a slow link all libraries wait for the same bytes; there the goal is the bound.
        free = [p for p in points if p["rate"] != "1gbit"]
        ratios = {key_of(p): found for p in free if (found := ratio(p)) is not None}
        goals: list[tuple[str, float, list[float]]] = []
        alone = (hosts, each) == (2, 1)
        mean = geometric_mean(ratios.values())
        goals.append(("times faster than the best peer, geometric mean", 1.5 if alone else 1.3, _some(mean)))
        if alone:
            goals.append(("the same, the least point", 1.0, list(ratios.values())))
        else:
            small = [found for key, found in ratios.items() if key[-1] <= SMALL]
            large = [found for key, found in ratios.items() if key[-1] >= LARGE]
            goals.append(("the least point up to 64 KiB", 0.8, small))
            goals.append(("the least point from 8 MiB on", 1.8, large))
        gloo = [found for p in free if p["size"] <= SMALL and (found := ratio(p, "gloo")) is not None]
        goals.append(("times faster than Gloo up to 64 KiB, geometric mean", 10.0, _some(geometric_mean(gloo))))
        goals.append(("share of the link's bound, AllReduce of 16 MiB at 1 Gbit/s", 0.9, _shares(points)))
        for what, goal, reached in goals:
            if reached:
                least = min(reached)
                told = "reached" if least >= goal else "**missed**"
                yield f"| {hosts}x{each} | {len(free)} | {what} | {goal:.1f} | {least:.2f} | {told} |"


def _some(value: float | None) -> list[float]:
    return [] if value is None else [value]


def _shares(points: Iterable[Any]) -> list[float]:
    """Each host sends, and gets, the part 2 (N - 1) / N of the data at least."""
    found: list[float] = []
    for p in points:
        if p["rate"] == "1gbit" and p["collective"] == "allreduce" and p["size"] == _BOUND_AT and OURS in p["us"]:
            bound_us = 1e6 * 2 * (p["hosts"] - 1) / p["hosts"] * p["size"] / _GBIT
            found.append(bound_us / p["us"][OURS][0])
    return found


def _results(data: Any) -> Iterable[str]:
    lost = [p for p in data["points"] if p["rate"] != "1gbit" and (ratio(p) or 9) < (least_of(p) or 0)]
    if lost:
        yield from ("Points that miss their goal (reasons are written by hand into the file of results):", "")
        yield "| Point | Best peer | Times faster | Goal | Reason |"
        yield "|---|---|---:|---:|---|"
        for p in lost:
            where = f"{p['collective']}, {p['hosts']}x{p['ranks_per_host']}, {_limit(p)}, {format_size(p['size'])}"
            why = data.get("reasons", {}).get(reason_of(p), "")
            yield f"| {where} | {best(p)} | {ratio(p):.2f} | {least_of(p):.1f} | {why} |"
        yield ""
    groups: dict[tuple[Any, ...], list[Any]] = {}
    for point in data["points"]:
        groups.setdefault(key_of(point)[:4], []).append(point)
    order = sorted(groups, key=lambda key: (*key[:3], COLLECTIVES.index(key[3])))
    for number, group in enumerate(order):
        hosts, each, _, collective = group
        points = groups[group]
        names = list(dict.fromkeys(name for point in points for name in point["us"]))
        names.sort(key=lambda name: (name != OURS, name))
        yield from (
            *([""] if number else []),
            f"#### {collective}, {hosts} hosts x {each}, {_limit(points[0])}",
            "",
            f"| Size | {' | '.join(names)} | best peer | times faster |",
            f"|---:|{'---:|' * len(names)}---|---:|",
        )
        for point in points:
            cells = [cell(point["us"].get(name)) for name in names]
            found = ratio(point)
            told = "" if found is None else f"{found:.2f}"
            yield f"| {format_size(point['size'])} | {' | '.join(cells)} | {best(point) or ''} | {told} |"


def _limit(point: Mapping[str, Any]) -> str:
    return "no limit" if point["rate"] == "none" else point["rate"]
