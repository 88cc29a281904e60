"""`gc3 synth --for-size`: schedules by their time, within a budget of threadblocks."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import click

from gc3 import errors, sim, synth
from gc3.runtime.scratch import ScratchLimit
from gc3.topologies import Topology
from gc3.tune.schedules import costs

_OPENING = (0.0, 0.25, 1.0, 4.0, 16.0, 64.0, 256.0)  # what a peer costs, until there are few enough


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
    for opening, lanes in product(_OPENING, (0, 1)):
        try:
            found = task.timed(count, by, opening)
            made = None if found.result is None else replace(found.result, lanes=lanes)
            if made is not None:
                made.program(**compiling)
        except errors.UserError as problem:
            if (opening, lanes) == (_OPENING[-1], 1) or problem.diagnostics[0].name != "TooManyThreadblocks":
                raise
        else:
            few = f", with few peers for at most {compiling['max_threadblocks']} threadblocks" if opening else ""
            return replace(found, result=made, how=found.how + few), None
    raise AssertionError("the last one is returned or raises")


def _platform(topology: Topology) -> sim.Platform | None:
    try:
        return sim.platform(topology)
    except errors.UserError:  # no preset for its processors
        return None
