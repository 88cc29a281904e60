"""Schedules of different kinds for one collective and machine, as candidates for its fastest program."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gc3 import errors
from gc3.synth import Outcome, Result, Task, TimeUp

# Multiples of the fewest chunks. Packed trees need a multiple of their own number, which is often 6 or a power of two.
_PIPELINED = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192)
_COMPOSED = (1, 2, 4, 8)
_MOST_SENDS = 24_000
_ROUNDS = 4  # of a frontier, more than its steps
_STEPS = 3  # of a frontier, more than the fewest
_MOST_RANKS = 16  # with a frontier


def schedules(task: Task, begin: Callable[[str], None]) -> Iterator[Result]:
    """Yields schedules until the time limit of the task's session; those that take little time to find come first.

    Args:
        task: The collective on the machine.
        begin: Called with the name of the next search.
    """
    if task.network.ranks == 1:
        return
    seen: set[tuple[int, int, int, int]] = set()
    for name, search in _searches(task):
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
                yield f"{times * unit} chunks, hierarchical", lambda c=times * unit: task.hierarchical(c)
    for times in _PIPELINED:
        if times * sends <= _MOST_SENDS:
            yield f"{times * unit} chunks, pipelined", lambda c=times * unit: task.pipelined(c)


def _within(task: Task, search: Callable[[], Outcome]) -> Outcome:
    """A search that may take long, in a third of the remaining time."""
    with task.reserving(2 / 3):
        return search()
