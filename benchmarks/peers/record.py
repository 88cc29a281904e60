"""Converts the results to plain data and back, and keeps them: one file for each machine."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import Any

import gc3
from gc3.runtime.measure import machine
from gc3.support import schema
from peers.bound import caches
from peers.contest import Contest
from peers.points import COLLECTIVES, MESSAGES, ROTATED, Point, Sample, has_messages
from peers.summary import summarize, worst

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
_LISTS = {name: name for name in ("sessions", "loaded", "messages")} | {"quiet": "points"}  # conditions -> key
_AUTOGROUP = Path("/proc/sys/kernel/sched_autogroup_enabled")


def version() -> str:
    """Returns gc3's version, with the commit where git knows it, and "changed" if gc3 differs from that commit."""

    def git(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)

    try:
        commit = git("rev-parse", "--short", "HEAD").stdout.strip()
        changed = " changed" * (git("diff", "--quiet", "HEAD", "--", "cpp", "python", "bindings").returncode == 1)
    except OSError:
        return gc3.__version__
    return f"{gc3.__version__} ({commit}{changed})" if commit else gc3.__version__


def point_data(point: Point) -> dict[str, Any]:
    """Returns a point as plain data, with derived values."""
    return {
        "collective": point.collective,
        "ranks": point.ranks,
        "size": point.size,
        "version": point.version,
        "times": _samples(point.times),
        "rotated": _samples(point.rotated),
        "rows": _samples(point.rows),
        "waits": _samples(point.waits),
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
    autogroup = _AUTOGROUP.read_text().strip() == "1" if _AUTOGROUP.exists() else None
    return {
        "machine": {**machine(), "cache_bytes": caches(), "autogroup": autogroup},
        "settings": asdict(contest.plan),
        "libraries": {library.name: library.version for library in contest.libraries},
        "missing": {missing.name: missing.why for missing in contest.missing},
        "failed": dict(contest.failed),
        "points": [point_data(point) for point in found],
        **_summaries(found),
    }


def points(data: Any, conditions: str = "quiet") -> list[Point]:
    """Returns the points of a document that were measured under these conditions."""
    return [schema.read_as(Point, point, {}) for point in data.get(_LISTS[conditions], [])]


def path_of(data: Any, kind: str = "processes") -> Path:
    """Returns the file of the results of a machine."""
    words = re.sub(r"\W+", "-", data["machine"]["cpu"]).strip("-").lower()
    return RESULTS / f"{kind}-{words or 'unknown'}.json"


def reason_of(point: Point) -> str:
    """Returns the key under which a person writes why a peer wins a point."""
    return f"{point.collective} {point.ranks} {point.size}"


def merged(old: Any, new: Any) -> dict[str, Any]:
    """Returns the results with the new points in the place of the old ones.

    Points of other conditions than "quiet" are kept apart. Reasons stay, and each point that a peer wins has one, empty
    until somebody writes it.
    """
    settings = new["settings"]
    conditions = "messages" if has_messages(settings["collectives"]) else settings["conditions"]
    lists = {key: old.get(key, []) for key in _LISTS.values()}
    lists[_LISTS[conditions]] = _replaced(lists[_LISTS[conditions]], new["points"])
    # What the quiet points were measured with.
    facts = old if conditions != "quiet" and "machine" in old else new
    libraries = {**old.get("libraries", {}), **facts["libraries"]}
    missing = {name: why for name, why in facts["missing"].items() if name not in libraries}
    same = {"machine": facts["machine"], "command": "make bench-vs", "libraries": libraries}
    same |= {"missing": missing, "failed": facts["failed"]}
    quiet = points(lists)
    reasons = {reason_of(point): "" for point in worst(quiet, None)}
    reasons |= {key: text for key, text in old.get("reasons", {}).items() if text}
    return {**same, **_summaries(quiet), "reasons": reasons, **lists}


def write(results: Mapping[str, Any], path: Path) -> None:
    """Writes results with today's date, one line for each point; a reader sees the old file or the new one."""
    dated = {**results, "date": f"{date.today()}"}
    head = json.dumps({key: value for key, value in dated.items() if not isinstance(value, list)}, indent=1)[:-2]
    for key in (key for key, value in dated.items() if isinstance(value, list)):
        lines = ",\n".join(f"  {json.dumps(point)}" for point in dated[key])
        head += f',\n "{key}": [\n{lines}\n ]' if lines else f',\n "{key}": []'
    path.parent.mkdir(exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.write_text(head + "\n}\n")
    fresh.replace(path)


def read(path: Path) -> dict[str, Any]:
    """Returns the results of a file; empty ones if there is none."""
    return json.loads(path.read_text()) if path.exists() else {}


def _replaced(old: Any, new: Any) -> list[Any]:
    def kind(point: Any) -> tuple[Any, ...]:
        return point["ranks"], (*COLLECTIVES, *MESSAGES).index(point["collective"]), point["size"]

    found = {kind(point): point for some in (old, new) for point in some}
    return [found[key] for key in sorted(found)]


def _summaries(found: list[Point]) -> dict[str, Any]:
    rotated = [point.of(ROTATED) for point in found if point.rotated]
    return {"summary": asdict(summarize(found)), "rotated": asdict(summarize(rotated))}


def _samples(times: Mapping[str, Sample]) -> dict[str, Any]:
    return {name: {k: v for k, v in asdict(sample).items() if v is not None} for name, sample in times.items()}
