"""The timeline of a run, simulated or recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from gc3 import _core, errors
from gc3.sim.details import Details, OneSidedDetails
from gc3.sim.explanation import Explanation, waited_for
from gc3.sim.predict import Prediction, Simulation
from gc3.sim.timeline import Arrow, Counter, Span, Timeline
from gc3.support.sizes import format_size

if TYPE_CHECKING:
    import numpy.typing as npt

MOST_SPANS = 200_000
_BINS = 200
_NONE = 0xFFFFFFFF
_PICO = 1e-12


class Wired(Protocol):
    """The threadblocks of a run, counted over all ranks."""

    def rank_of(self) -> list[int]:
        """Returns the rank of every threadblock."""
        ...

    def step_name(self, tb: int, step: int) -> str:
        """Names a step, as "rank 1 threadblock 0 step 3 (rrc)"."""
        ...

    def route(self, tb: int) -> list[int]:
        """Returns the resources that a threadblock's sends use."""
        ...


@dataclass(frozen=True, slots=True)
class Run:
    """A run with its records."""

    title: str  # what ran
    wired: Wired  # its threadblocks
    rank_names: Sequence[str]  # by rank
    why: Explanation  # the records of the run
    details: Details  # what its steps do


def simulated(simulation: Simulation, prediction: Prediction) -> Run:
    """Returns the timeline of an explained run of the simulator.

    That of a one-sided program has no rates of links.

    Raises:
        gc3.UserError: The run was not explained.
    """
    if prediction.explanation is None:
        raise errors.error("BadSimulation", "a timeline needs a run with explain=True")
    topology = simulation.platform.topology
    title = f"{simulation.described.name} on {topology.title}, {format_size(prediction.size)}"
    core = simulation.core
    details = OneSidedDetails(core) if isinstance(core, _core.DirectSimulator) else Details(simulation.fifo.program)
    return Run(title, core, [r.name for r in topology.ranks], prediction.explanation, details)


def timeline(run: Run, *, ranks: frozenset[int] | None = None, most: int = MOST_SPANS) -> Timeline:
    """Returns the timeline of a run.

    Args:
        run: The run.
        ranks: Only these; None: all.
        most: Leave out spans after this many.
    """
    core, records = run.wired, run.why.records
    rank_of = np.array(core.rank_of(), np.int64)
    first_tb: dict[int, int] = {}
    for tb, rank in enumerate(core.rank_of()):
        first_tb.setdefault(rank, tb)
    wanted = np.ones(len(records), bool) if ranks is None else np.isin(rank_of[records["tb"]], sorted(ranks))

    def place(tb: int) -> tuple[int, int]:
        rank = int(rank_of[tb])
        return rank, tb - first_tb[rank]

    critical = np.zeros(len(records), bool)
    critical[[k for _, _, k in run.why.path_records if k is not None]] = True
    spans, dropped = _spans(run.details, records[wanted], critical[wanted], place, most)
    shown = {(s.rank, s.tb) for s in spans}
    return Timeline(
        run.title,
        {rank: f"rank {rank} ({run.rank_names[rank]})" for rank in sorted({rank for rank, _ in shown})},
        {(rank, tb): f"threadblock {run.details.name(first_tb[rank] + tb)}" for rank, tb in sorted(shown)},
        spans,
        [a for a in _arrows(records, wanted, place) if a.tail[:2] in shown and a.head[:2] in shown][:most],
        _counters(core, records, run.why.time_s, run.why.resources),
        dropped,
    )


def _spans(
    details_of: Details, records: npt.NDArray[Any], critical: npt.NDArray[np.bool_], place: Any, most: int
) -> tuple[list[Span], int]:
    """The slices of a step in a tile together are a span."""
    order = np.lexsort((records["slice"], records["step"], records["tile"], records["tb"]))
    sorted_, marked = records[order], critical[order]
    begins = np.flatnonzero(sorted_["slice"] == 0)
    ends = np.append(begins[1:], len(sorted_))
    by_time = np.argsort(sorted_["start"][begins], kind="stable")
    spans: list[Span] = []
    for k in by_time[:most]:
        slices = sorted_[begins[k] : ends[k]]
        first, last = slices[0], slices[-1]
        rank, tb = place(int(first["tb"]))
        name = details_of.action(int(first["tb"]), int(first["step"]))
        waited = int(first["start"] - first["ready"])
        details: dict[str, Any] = {
            "step": int(first["step"]),
            "tile": int(first["tile"]),
            "slices": len(slices),
            "bytes": int(slices["bytes"].sum()),
            "on the critical path": bool(marked[begins[k] : ends[k]].any()),
        }
        if line := details_of.line(int(first["tb"]), int(first["step"])):
            details["line"] = line
        if waited:
            details |= {"waited_us": waited * 1e-6, "waited_for": waited_for(first)}
        spans.append(Span(rank, tb, name, int(first["start"]) * _PICO, int(last["end"]) * _PICO, details))
    return spans, max(len(begins) - most, 0)


def _arrows(records: npt.NDArray[Any], wanted: npt.NDArray[np.bool_], place: Any) -> list[Arrow]:
    """A message is an arrow from its first slice's start to that of its receiver."""
    takers = np.flatnonzero((records["sent_by"] != _NONE) & (records["slice"] == 0) & wanted)
    arrows: list[Arrow] = []
    for k in takers:
        sent, taken = records[records["sent_by"][k]], records[k]
        tail = (*place(int(sent["tb"])), int(sent["start"]) * _PICO)
        arrows.append(Arrow(tail, (*place(int(taken["tb"])), int(taken["start"]) * _PICO)))
    return arrows


def _counters(core: Wired, records: npt.NDArray[Any], time_s: float, names: list[str]) -> list[Counter]:
    """The rate of every resource in use, averaged over a two-hundredth of the run."""
    if time_s <= 0 or not len(records):
        return []
    width = time_s / _BINS / _PICO
    rates: dict[int, npt.NDArray[np.float64]] = {}
    for tb in np.unique(records["tb"]):
        route = core.route(int(tb))
        if not route:
            continue
        own = records[(records["tb"] == tb) & (records["sends"] == 1)]
        load = np.zeros(_BINS)
        for begin, end, size in zip(own["start"] / width, own["delivered"] / width, own["bytes"], strict=True):
            edges = np.minimum(np.maximum(np.arange(int(begin), int(end) + 2), begin), end)
            bins = np.minimum(np.arange(int(begin), int(end) + 1), _BINS - 1)
            # A recorded step may begin and end at the same reading of the clock.
            np.add.at(load, bins, size * (np.diff(edges) / (end - begin) if end > begin else 1.0))
        for resource in route:
            rates[resource] = rates.get(resource, np.zeros(_BINS)) + load
    seconds = time_s / _BINS
    return [
        Counter(names[r], "GB/s", tuple((k * seconds, float(x) / seconds / 1e9) for k, x in enumerate(load)))
        for r, load in sorted(rates.items())
    ]
