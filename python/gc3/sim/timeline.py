"""The timeline of a run, simulated or real: spans of threadblocks, messages between them, counters over time.

Written in the trace event format that Perfetto (ui.perfetto.dev) and chrome://tracing read: a rank is a process, a
threadblock a thread, a message an arrow.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Span:
    """One step of a threadblock in one tile; times in seconds."""

    rank: int  # the rank
    tb: int  # the threadblock, counted within the rank
    name: str  # what it does, such as "rrcs"
    start_s: float  # when it began
    end_s: float  # when it ended
    details: dict[str, Any] = field(default_factory=dict[str, Any])  # shown on a click


@dataclass(frozen=True, slots=True)
class Arrow:
    """A message: from a time in one threadblock to a time in another; (rank, tb, seconds) at both ends."""

    tail: tuple[int, int, float]
    head: tuple[int, int, float]


@dataclass(frozen=True, slots=True)
class Counter:
    """A quantity over time: (seconds, value), shown with the rank of that number or -1 for the machine."""

    name: str
    unit: str
    points: tuple[tuple[float, float], ...]
    rank: int = -1


@dataclass(frozen=True, slots=True)
class Timeline:
    """A run."""

    title: str  # what ran
    rank_names: dict[int, str]  # of all ranks that appear
    tb_names: dict[tuple[int, int], str]  # by (rank, tb)
    spans: Sequence[Span]  # steps
    arrows: Sequence[Arrow]  # messages
    counters: Sequence[Counter]  # quantities
    dropped: int = 0  # spans left out because there were too many


def events(timeline: Timeline) -> Iterator[dict[str, Any]]:
    """Yields the trace events; times in microseconds, as the format demands."""
    machine = max(timeline.rank_names, default=0) + 1
    for rank, name in timeline.rank_names.items():
        yield _metadata("process_name", rank, name)
        yield {**_metadata("process_sort_index", rank, ""), "args": {"sort_index": rank}}
    if any(c.rank < 0 for c in timeline.counters):
        yield _metadata("process_name", machine, "links")
    for (rank, tb), name in timeline.tb_names.items():
        yield {**_metadata("thread_name", rank, name), "tid": tb}
    for span in timeline.spans:
        yield {
            "ph": "X",
            "cat": "step",
            "name": span.name,
            "pid": span.rank,
            "tid": span.tb,
            "ts": 1e6 * span.start_s,
            "dur": 1e6 * (span.end_s - span.start_s),
            "args": span.details,
        }
    for number, arrow in enumerate(timeline.arrows):
        common = {"cat": "message", "name": "message", "id": number}
        for phase, (rank, tb, at) in (("s", arrow.tail), ("f", arrow.head)):
            yield {"ph": phase, "bp": "e", **common, "pid": rank, "tid": tb, "ts": 1e6 * at}
    for counter in timeline.counters:
        for at, value in counter.points:
            yield {
                "ph": "C",
                "name": f"{counter.name} ({counter.unit})",
                "pid": machine if counter.rank < 0 else counter.rank,
                "ts": 1e6 * at,
                "args": {counter.unit: value},
            }


def dumps(timeline: Timeline) -> str:
    """Returns the JSON document."""
    return "".join(_document(timeline))


def to_bytes(timeline: Timeline, *, compressed: bool) -> bytes:
    """Returns the JSON document, compressed by gzip (which Perfetto reads as well) if wanted."""
    data = dumps(timeline).encode()
    return gzip.compress(data, mtime=0) if compressed else data


def _document(timeline: Timeline) -> Iterable[str]:
    about = {"title": timeline.title, "spans left out": timeline.dropped}
    yield f'{{"displayTimeUnit": "ns", "otherData": {json.dumps(about)}, "traceEvents": [\n'
    separator = ""
    for event in events(timeline):
        yield separator + json.dumps(event)
        separator = ",\n"
    yield "\n]}\n"


def _metadata(kind: str, rank: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": rank, "args": {"name": name}}
