"""What every program of a collective takes at least on a machine, because of its links alone."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial

from gc3.datatypes import FORMATS
from gc3.sim import Platform
from gc3.synth import MOST_PAIRS, NAMES, Network, Session, Solvers, Task
from gc3.synth.bounds.by_ports import port_bound


@dataclass(frozen=True, slots=True)
class LinkBound:
    """A lower bound on time."""

    seconds_per_byte: float  # for each byte of S
    proof: str  # what must cross which links


def link_bound(
    on: Platform,
    collective: str,
    root: int,
    solvers: Solvers,
    deadline: float,
    protocols: Collection[str] = FORMATS,
) -> LinkBound:
    """Returns the bound of any number of steps, at the rates that the best protocol reaches on each kind of wire.

    Where too many pairs of ranks reach each other, it is that of the ports of ranks and nodes alone.

    Args:
        on: The machine.
        collective: A collective that can be synthesized.
        root: The root of a rooted one.
        solvers: Solvers for linear programs.
        deadline: The time of `time.monotonic` at which the search for a bound ends.
        protocols: Those that may be used.

    Raises:
        TimeUp: The time limit was reached.
        gc3.UserError: Some data cannot reach its targets, or a bandwidth is not known.
    """
    rates: dict[str, float] = {}  # of a lane, by class
    timings = [timing for name, timing in on.parameters.protocols.items() if name in protocols]
    for part in on.topology.all_resources:
        lane = max(on.rate(part, timing) for timing in timings) / part.lanes
        rates[part.link_class] = max(lane, rates.get(part.link_class, 0.0))
    if on.topology.most_pairs > MOST_PAIRS:
        by_ports = port_bound(on.topology, collective, root, lambda part: part.lanes * rates[part.link_class])
        return LinkBound(by_ports.least, by_ports.proof)
    classes = tuple(
        replace(c, bandwidth_bytes_per_s=rates.get(c.name, c.bandwidth_bytes_per_s)) for c in on.topology.classes
    )
    unit = min(rates.values(), default=1.0)
    network = Network.of(replace(on.topology, classes=classes), unit)
    task = Task(Session(network, solvers, deadline), collective, root)
    bound = task.any_steps()
    return LinkBound(float(bound.rounds) * task.unit / (task.problem(task.unit).largest * unit), bound.proof)


def floors(on: Platform, collective: str, root: int, protocols: Sequence[str]) -> list[float]:
    """Returns by protocol the seconds for each byte of S that no program takes less than; 0: that is not known.

    They are of the ports of ranks and nodes alone, which takes no search.
    """
    timings, found = on.parameters.protocols, dict.fromkeys(protocols, 0.0)
    for name in timings.keys() & found.keys() if collective in NAMES else ():
        least = port_bound(on.topology, collective, root, partial(on.rate, protocol=timings[name])).least
        found[name] = least if least < math.inf else 0.0
    return list(found.values())
