"""What `gc3 synth` decides by time: schedules for a size, and which schedule a program of many chunks follows."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import click

from gc3 import errors, sim, synth
from gc3.runtime.scratch import ScratchLimit
from gc3.topologies import Topology
from gc3.tune.schedules import costs

_OPENING = (0.0, 0.25, 1.0, 4.0, 16.0, 64.0, 256.0)  # what a peer costs, until there are few enough
_SIZES = (1 << 20, 16 << 20, 256 << 20)  # at which programs of many chunks are compared
_MOST_SENDS = 20_000  # of a schedule of which there is a second one
_FOR_SECOND = 4.0  # times as long as the first schedule took there must be left
_FASTER = 1.02  # a program is preferred that is faster by this factor


def check_limit(memory: ScratchLimit | None, for_size: int | None) -> None:
    """Refuses a limit in bytes for schedules that are not for a size."""
    if memory is not None and not memory.of and for_size is None:
        raise click.UsageError(f"--max-scratch {memory}: in calls of which S? For example {memory}/256MiB")


def search(
    task: synth.Task, topology: Topology, count: int, size: int, compiling: dict[str, Any]
) -> tuple[synth.Outcome, None]:
    """Finds a schedule for a size whose program has no more threadblocks than `compiling` allows.

    The costs are those of the machine's preset in the simulator; without one, the latencies and line rates of the
    topology. While the program has too many threadblocks, another peer of a rank costs more.

    Raises:
        gc3.UserError: There is no such program.
    """
    on = _platform(topology)

    def plain(network: synth.Network, back: bool, largest: int) -> synth.Costs:
        return synth.Costs.of(topology, network, size / largest, back=back)

    by = plain if on is None else costs(on, compiling["protocol"], size)
    for opening in _OPENING:
        found = task.timed(count, by, opening)
        if found.result is None:
            return found, None
        for lanes in (0, 1):
            made = replace(found.result, lanes=lanes)
            try:
                made.program(**compiling)
            except errors.UserError as problem:
                if (opening, lanes) == (_OPENING[-1], 1) or problem.diagnostics[0].name != "TooManyThreadblocks":
                    raise
            else:
                few = f", with few peers for at most {compiling['max_threadblocks']} threadblocks" if opening else ""
                return replace(found, result=made, how=found.how + few), None
    raise AssertionError("the last one is returned or raises")


def in_time(
    task: synth.Task,
    topology: Topology,
    search: Callable[[synth.Task], synth.Outcome],
    compiling: dict[str, Any],
) -> tuple[synth.Outcome, None]:
    """Searches for a schedule of many chunks, and for one whose sends are not moved to save rounds.

    In moved ones chunks overtake each other, for which threadblocks wait. The result is the first schedule; its
    program follows the second one if it is faster by the machine's preset. On machines without a preset, and for large
    schedules, there is no second one.
    """
    begun = time.monotonic()
    found = search(task)
    on, made = _platform(topology), found.result
    enough = task.session.left > _FOR_SECOND * (time.monotonic() - begun)
    if on is None or made is None or not enough or made.schedule.send_count > _MOST_SENDS:
        return found, None
    try:
        other = search(task.unmoved()).result
        if other is None or other.cost == made.cost:
            return replace(found, seconds=time.monotonic() - begun), None
        gain = _seconds(made, on, compiling) / _seconds(other, on, compiling)
    except (errors.UserError, synth.TimeUp):  # too many threadblocks, which the caller reports
        return found, None
    found = replace(found, seconds=time.monotonic() - begun)
    if gain < _FASTER:
        return found, None
    how = f"{found.how}; the program follows a schedule of R={other.cost[2]}, predicted {gain:.2f} times as fast"
    return replace(found, result=replace(other, schedule=made.schedule, written=other.schedule), how=how), None


def _seconds(made: synth.Result, on: sim.Platform, compiling: dict[str, Any]) -> float:
    """The geometric mean of a program's times at some sizes."""
    simulation = sim.Simulation(made.program(**compiling), on)
    return math.prod(simulation.run(size).time_s for size in _SIZES) ** (1 / len(_SIZES))


def _platform(topology: Topology) -> sim.Platform | None:
    try:
        return sim.platform(topology)
    except errors.UserError:  # no preset for its processors
        return None
