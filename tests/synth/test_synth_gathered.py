"""Contributions to a sum that are moved together, and the ways in which a schedule becomes a program."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from gc3 import sim, synth, topologies
from gc3.lang import compile as compile_program
from gc3.runtime.program import verify
from gc3.synth.problem.demand import Item
from gc3.synth.problem.schedule import Schedule
from gc3.synth.result import gathered

pytestmark = pytest.mark.python_only

ALL = frozenset(range(4))


def test_contributions_move_to_the_last_one() -> None:
    steps = (((0, 1, 0),), ((0, 2, 0),), ((0, 3, 0),), ((0, 0, 1), (0, 0, 2), (0, 0, 3)))
    moved = gathered([Item(ALL, ALL)], Schedule((1, 1, 1, 3), steps))
    assert moved == ((), (), ((0, 1, 0), (0, 2, 0), (0, 3, 0)), steps[3])


def test_small_sums_come_before_large_ones() -> None:
    steps = (((0, 3, 2), (0, 1, 0)), ((0, 2, 0),), ((0, 0, 1),))
    moved = gathered([Item(ALL, frozenset({1}))], Schedule((1, 1, 1), steps))
    assert moved == (((0, 3, 2), (0, 1, 0)), ((0, 2, 0),), ((0, 0, 1),))
    # The large one is sent first here, so the small one goes before it in the same step.
    steps = (((0, 3, 2),), ((0, 2, 0),), ((0, 1, 0),), ((0, 0, 1),))
    moved = gathered([Item(ALL, frozenset({1}))], Schedule((1, 1, 1, 1), steps))
    assert moved == (((0, 3, 2),), (), ((0, 1, 0), (0, 2, 0)), ((0, 0, 1),))


def test_a_sender_whose_data_change_sends_before() -> None:
    steps = (((0, 1, 0),), ((0, 3, 1),), ((0, 2, 0),))
    moved = gathered([Item(ALL, frozenset({0}))], Schedule((1, 1, 1), steps))
    assert moved == ((), ((0, 1, 0), (0, 3, 1)), ((0, 2, 0),))


@pytest.mark.parametrize(
    "machine", ["dgx1", "ndv2:N=2", "hierarchical:N=2,G=4,nics=2", "fat_tree:R=8,leaf=4,taper=2", "torus:X=3,Y=3"]
)
@pytest.mark.parametrize("collective", ["allreduce", "reducescatter"])
def test_every_way_is_proven(machine: str, collective: str) -> None:
    network = synth.Network.of(topologies.load(machine))
    with synth.Solvers() as solvers:
        task = synth.Task(synth.Session(network, solvers), collective)
        result = task.pipelined(4 * task.unit).result
    assert result is not None
    moved = gathered(result.problem.contents, result.schedule)
    assert Counter(send for sends in moved for send in sends) == Counter(
        send for sends in result.schedule.steps for send in sends
    )
    for order in ("depth", "steps", "gathered"):
        for parts in (1, 3) if network.nodes else (1,):
            verify(compile_program(replace(result, order=order, parts=parts).algorithm(), max_threadblocks=0))


def test_threadblocks_do_not_wait_in_turns() -> None:
    """Eight GPUs on a switch reduce from all others at once: by depth, each sum waits for the one before it."""
    on = sim.platform("ndv4:N=2")
    with synth.Solvers() as solvers:
        task = synth.Task(synth.Session(synth.Network.of(on.topology), solvers), "allreduce")
        result = task.hierarchical(128, overlapped=True).result
    assert result is not None
    times = {}
    for order in ("depth", "gathered"):
        program = compile_program(replace(result, lanes=1, order=order).algorithm(), instances=2, max_threadblocks=0)
        times[order] = sim.Simulation(program, on).run(1 << 30).time_s
    assert times["gathered"] < times["depth"] / 1.2
