"""Schedules of different kinds for one collective and machine, as candidates for its fastest program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

from gc3 import errors
from gc3.comm.spec import Spec
from gc3.lang import compile as compile_program
from gc3.runtime.program import Program
from gc3.sim import Platform
from gc3.synth import Costs, Network, OneRankResult, Outcome, Result, Task, TimeUp

# Multiples of the fewest chunks. Packed trees need a multiple of their own number, which is often 6 or a power of two.
_PIPELINED = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192)
_COMPOSED = (1, 2, 4, 8)
_OVERLAPPED = (2, 8, 16, 32)
_MOST_SENDS = 32_000
_ROUNDS = 4  # of a frontier, more than its steps
_TIMED = (1, 2)
_SIZES = 4  # one more of them get schedules by time
_PROTOCOLS = ((256 << 10, "LL"), (8 << 20, "LL128"))  # up to these sizes
_STEPS = 3  # of a frontier, more than the fewest
_MOST_RANKS = 16  # with a frontier
_MOST_OF_A_PROGRAM = 400_000  # sends


def schedules(
    task: Task, begin: Callable[[str], None], on: Platform | None = None, sizes: Sequence[int] = ()
) -> Iterator[Result]:
    """Yields schedules until the time limit of the task's session; those that take little time to find come first.

    Args:
        task: The collective on the machine.
        begin: Called with the name of the next search.
        on: The machine with its rates; None: no schedules for sizes.
        sizes: In bytes, ascending; of some of them there are schedules by time.
    """
    if task.network.ranks == 1:
        return
    seen: set[tuple[int, int, int, int]] = set()
    for name, search in chain(_searches(task), () if on is None else _timed(task, on, sizes)):
        if task.session.left <= 0:
            return
        begin(name)
        try:
            found = search()
        except (TimeUp, errors.UserError):  # of nodes that are not alike, for example
            continue
        if found.result is not None and (key := (*found.result.cost, found.result.lanes)) not in seen:
            seen.add(key)
            yield found.result
    if task.network.ranks > _MOST_RANKS:
        return
    begin("frontier")
    try:
        for point in task.frontier(_ROUNDS, task.least_steps() + _STEPS):
            if point.outcome.result is not None and (*point.outcome.result.cost, 0) not in seen:
                yield point.outcome.result
    except TimeUp:
        return


def _searches(task: Task) -> Iterator[tuple[str, Callable[[], Outcome]]]:
    unit = task.unit
    # The chunks that cross the network, each to all ranks that need it.
    sends = sum(len(p.targets) * p.count for _, wanted in task.parts(unit) for p in wanted.pieces)
    yield f"{unit} chunks, fewest steps", lambda: _within(task, lambda: task.least_rounds(unit, task.least_steps()))
    if task.network.nodes:
        for times in _COMPOSED:
            if times * sends <= _MOST_SENDS:
                yield f"{times * unit} chunks, hierarchical", partial(task.hierarchical, times * unit)
        for times in _OVERLAPPED:
            if times * sends <= _MOST_SENDS:
                name = f"{times * unit} chunks, hierarchical and pipelined"
                yield name, partial(task.hierarchical, times * unit, overlapped=True)
    for times in _PIPELINED:
        if times * sends <= _MOST_SENDS:
            yield f"{times * unit} chunks, pipelined", lambda c=times * unit: task.pipelined(c)


def costs(on: Platform, protocol: str, size: int) -> Callable[[Network, bool, int], Costs]:
    """Returns the function that `Task.timed` takes: what chunks cost on a machine with a protocol, for a size."""
    timing = on.parameters.protocol(protocol)
    latency, rate = partial(on.latency, protocol=timing), partial(on.rate, protocol=timing)

    def of(network: Network, back: bool, largest: int) -> Costs:
        return Costs.of(on.topology, network, size / largest, back=back, latency=latency, rate=rate)

    return of


def _timed(task: Task, on: Platform, sizes: Sequence[int]) -> Iterator[tuple[str, Callable[[], Outcome]]]:
    sends = sum(len(p.targets) * p.count for _, wanted in task.parts(task.unit) for p in wanted.pieces)
    for size in sorted({sizes[i * (len(sizes) - 1) // _SIZES] for i in range(_SIZES + 1)} if sizes else ()):
        protocol = next((name for most, name in _PROTOCOLS if size <= most), "Simple")
        if on.parameters.protocols.keys() >= {protocol}:
            for times in _TIMED:
                if times * sends <= _MOST_SENDS:
                    by = costs(on, protocol, size)
                    yield f"{times * task.unit} chunks, for {size} B", partial(task.timed, times * task.unit, by)


def _within(task: Task, search: Callable[[], Outcome]) -> Outcome:
    """A search that may take long, in a third of the remaining time."""
    with task.reserving(2 / 3):
        return search()


def compiled(result: Result | OneRankResult, spec: Spec, *, in_place: bool) -> Program:
    """Returns a program of a schedule.

    Raises:
        gc3.UserError: It is too large, or cannot be compiled so.
    """
    how: dict[str, Any] = {"protocol": spec.protocol, "in_place": in_place, "max_threadblocks": spec.threadblocks}
    if isinstance(result, OneRankResult):
        return result.program(**how)
    given = dict[str, Any](spec.parameters)
    again = given.pop("again", 0)
    if spec.instances * given.get("parts", 1) * result.schedule.send_count > _MOST_OF_A_PROGRAM:
        raise errors.error("BadArgument", f"'{result.name}' with {spec.instances} instances is too large")
    algorithm, scratch = replace(result, **given).algorithm(), 0 if again else result.scratch
    return compile_program(algorithm, instances=spec.instances, scratch=scratch, memory="fifo", **how)
