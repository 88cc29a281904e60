"""AllReduce over pairs of trees with free roots: its load is that of the bound, and its rounds approach the load."""

from __future__ import annotations

import time
from collections.abc import Callable
from fractions import Fraction

import pytest

from gc3 import topologies
from gc3.runtime.checking import Case
from gc3.synth import Network, Outcome, Session, Solvers, Task, result
from gc3.synth.methods import tree_packing
from gc3.synth.problem.demand import Demand, Item, Piece
from gc3.synth.problem.schedule import Hop, Schedule, overlapped, placed
from gc3.synth.result import Result
from own_bounds import Machine, replay
from small_networks import AMPLE

pytestmark = pytest.mark.python_only

# Machines, the bandwidth of a round in GB/s, and the bound on R/C that pairs reach.
MACHINES: list[tuple[str, float | None, Fraction]] = [
    ("star:R=8", None, Fraction(1)),
    ("line:R=8", None, Fraction(1)),
    ("ring:R=8", None, Fraction(7, 8)),
    ("dgx1", None, Fraction(7, 24)),
    ("dgx1:without=0-1", None, Fraction(7, 22)),
    ("ndv2:N=2", None, Fraction(1)),
    ("ndv4", None, Fraction(7, 48)),
    ("ndv4:N=2", 25, Fraction(15, 104)),
    ("summit:N=2", None, Fraction(1, 2)),
    ("mi300x:N=2", None, Fraction(125, 664)),
    ("fat_tree:R=8,leaf=4,taper=2", None, Fraction(7, 4)),
]


def task_of(spec: str, unit: float | None, solvers: Solvers) -> Task:
    network = Network.of(topologies.load(spec), None if unit is None else unit * 1e9)
    return Task(Session(network, solvers, time.monotonic() + AMPLE), "allreduce")


def pairs_of(task: Task) -> tree_packing.Pairs:
    session = task.session
    found = tree_packing.best_pairs(
        task.network, session.group(task.problem(task.unit).demands[-1]), session.solvers, AMPLE
    )
    assert found is not None
    return found


@pytest.mark.parametrize(("spec", "unit", "ratio"), MACHINES, ids=str)
def test_load_is_the_bound(spec: str, unit: float | None, ratio: Fraction, solvers: Solvers) -> None:
    task = task_of(spec, unit, solvers)
    network = task.network
    found = pairs_of(task)
    assert found.ratio == task.any_steps().rounds == ratio
    copies: list[dict[int, int]] = []
    for listed, towards in ((found.into, True), (found.out, False)):
        copies.append({})
        for tree in listed:
            copies[-1][tree.root] = copies[-1].get(tree.root, 0) + tree.copies
            reached = {tree.root}
            for edge, _ in tree.branches:
                known, new = network.edges[edge][::-1] if towards else network.edges[edge]
                assert known in reached
                assert new not in reached
                reached.add(new)
            assert len(reached) == network.ranks
    assert copies[0] == copies[1]
    assert sum(copies[0].values()) == found.copies
    load = tree_packing.load(network, (*found.into, *found.out))
    assert all(used <= found.rounds * Fraction(c) for used, (_, c) in zip(load, network.bounds, strict=True))


def check_run(network: Network, made: Result) -> None:
    chunks, schedule = made.chunks, made.schedule
    relation = tuple((tuple(network.edges[e] for e in m), Fraction(c)) for m, c in network.bounds)
    replay(Machine(network.ranks, relation), "allreduce", chunks, 0, schedule.rounds, schedule.steps)
    program = made.program()
    program.verify()
    case = Case(program.collective, 1000, "int32")
    inputs, outputs = case.inputs(), case.poisoned_outputs()
    program.run(inputs, outputs=outputs, count=case.count, dtype=case.dtype, op=case.op)
    assert case.compare(inputs, outputs).ok


@pytest.mark.parametrize(("spec", "most"), [("star:R=8", 1.008), ("line:R=8", 1.055), ("dgx1:without=0-1", 1.1)])
def test_rounds_approach_the_load_and_programs_run(spec: str, most: float, solvers: Solvers) -> None:
    """A composition takes 7/4 on the star and the line, and 7/16 on the broken DGX-1."""
    task = task_of(spec, None, solvers)
    schedule = tree_packing.schedule_of_pairs(task.network, 128, pairs_of(task), AMPLE)
    best = task.pipelined(128).result
    assert best is not None
    assert best.schedule.total_rounds <= schedule.total_rounds <= most * 128 * task.any_steps().rounds
    for made in (best, result.whole(task.network, task.problem(128), schedule)):
        check_run(task.network, made)


def test_pairs_are_used_where_no_composition_is_as_good(solvers: Solvers) -> None:
    outcome = task_of("dgx1:without=0-1", None, solvers).pipelined(352)
    assert outcome.how == "pairs of trees: with more chunks R/C tends to 7/22"
    assert not outcome.composed


def test_with_many_chunks_only_the_depth_remains(solvers: Solvers) -> None:
    """On a line, the last chunk begins after all others, and passes seven more links, to a middle rank and back."""
    task = task_of("line:R=8", None, solvers)
    for chunks in (64, 512):
        assert tree_packing.schedule_of_pairs(task.network, chunks, pairs_of(task), AMPLE).total_rounds == chunks + 7


@pytest.mark.parametrize("spec", ["dgx1", "lassen:N=2", "torus:X=4,Y=4", "fat_tree:R=8,leaf=4,taper=2"])
def test_never_worse_than_both_halves(spec: str, solvers: Solvers) -> None:
    task = task_of(spec, None, solvers)
    outcome = task.pipelined(4 * task.unit)
    halves = Task(task.session, "allgather").pipelined(4), Task(task.session, "reducescatter").pipelined(4 * task.unit)
    assert outcome.result is not None
    assert outcome.result.cost[2] <= sum(h.result.cost[2] for h in halves if h.result is not None)


@pytest.mark.parametrize("method", [Task.pipelined, Task.hierarchical])
def test_programs_take_as_many_threadblocks_as_the_gpu_holds(
    method: Callable[[Task, int], Outcome], solvers: Solvers
) -> None:
    """On 64 GPUs all lanes would take 112 on some; an A100 has 108."""
    most = topologies.load("ndv4:N=8").threadblocks
    made = method(task_of("ndv4:N=8", 25, solvers), 512).result
    assert made is not None
    program = made.program(max_threadblocks=most)
    program.verify()
    assert program.info()["max_threadblocks_per_rank"] <= most


def test_without_time_there_are_none(solvers: Solvers) -> None:
    task = task_of("dgx1", None, solvers)
    group = task.session.group(task.problem(8).demands[-1])
    assert tree_packing.best_pairs(task.network, group, solvers, 0.0) is None


def test_phases_overlap(solvers: Solvers) -> None:
    """Two chunks over three ranks in a line, one after the other: the second follows the first."""
    network = Network.of(topologies.load("line:R=3"))
    schedule = Schedule((1, 1, 1, 1), (((0, 0, 1),), ((0, 1, 2),), ((1, 0, 1),), ((1, 1, 2),)))
    wanted = Demand("two", 3, 2, 0, (Piece(0, frozenset({1, 2}), 2),))
    contents = (Item(frozenset({0}), frozenset(range(3))),) * 2
    assert overlapped(network, wanted, contents, schedule, 10.0) == Schedule(
        (1, 1, 1), (((0, 0, 1),), ((0, 1, 2), (1, 0, 1)), ((1, 1, 2),))
    )
    both = [Hop(0, network.edge_index[0, 1], 0, ()), Hop(1, network.edge_index[2, 1], 0, ())]
    waits = Hop(2, network.edge_index[1, 2], 0, (0, 1))
    assert placed(network, [*both, waits], 10.0).steps == (((0, 0, 1), (1, 2, 1)), ((2, 1, 2),))
