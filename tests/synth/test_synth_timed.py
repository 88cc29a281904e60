"""Schedules by time: right, by the costs of the machine, and within a budget of threadblocks."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from fractions import Fraction

import pytest

from gc3 import sim, synth, topologies
from gc3.cli import synth_timed
from gc3.synth import Costs, Network, Session, Solvers, Task
from gc3.synth.methods import timed_trees, tree_packing
from gc3.synth.problem import demand
from gc3.topologies import Builder, LinkClass
from gc3.tune.schedules import costs
from own_bounds import Machine, replay

pytestmark = pytest.mark.python_only

FAST, SLOW = (
    LinkClass("fast", 10e9, latency_s=1e-6, source="test"),
    LinkClass("slow", 10e9, latency_s=50e-6, source="test"),
)


def solved(spec: str, name: str, size: int, chunks: int = 1) -> tuple[Network, synth.Outcome]:
    on = sim.platform(spec)
    network = Network.of(on.topology)
    with Solvers() as solvers:
        task = Task(Session(network, solvers), name, 1)
        return network, task.timed(chunks * task.unit, costs(on, "Simple", size))


@pytest.mark.parametrize("name", synth.NAMES)
@pytest.mark.parametrize("spec", ["dgx1", "summit:N=2", "hierarchical:N=2,G=3,nics=1", "line:R=4"])
def test_schedules_are_right(name: str, spec: str) -> None:
    network, outcome = solved(spec, name, 1 << 18, 2)
    made = outcome.result
    assert made is not None
    relation = tuple((tuple(network.edges[e] for e in m), Fraction(c)) for m, c in network.bounds)
    machine = Machine(network.ranks, relation)
    replay(machine, name, made.chunks, made.problem.root, made.schedule.rounds, made.schedule.steps)
    took, least = (float(text.split(" us")[0].split()[-1]) for text in outcome.how.split(", of at least"))
    assert took >= 0.999 * least > 0


def test_latency_of_each_link_counts() -> None:
    """A square of which one link is slow to begin: small data takes the long way round it, large data both ways."""
    build = Builder("square")
    for r in range(4):
        build.rank(f"gpu{r}")
    for a, b, wire in ((0, 1, FAST), (1, 2, FAST), (2, 3, FAST), (3, 0, SLOW)):
        build.join(a, b, wire)
    machine = build.build()
    network = Network.of(machine)
    slow = {network.edge_index[0, 3], network.edge_index[3, 0]}
    wanted = demand.builtin("allgather", 4, 4)
    for size, uses in ((64, False), (64 << 20, True)):
        found = timed_trees.timed(network, wanted, Costs.of(machine, network, size / 16))
        used = {network.edge_index[src, dst] for step in found.schedule.steps for _, src, dst in step}
        assert bool(used & slow) == uses
        assert found.least <= found.seconds


def test_time_is_that_of_the_machine() -> None:
    """A replay by another rule: each part of the machine serves the sends in the order of the schedule."""
    machine = topologies.load("dgx1")
    network = Network.of(machine)
    wanted = demand.builtin("allgather", 8, 1)
    on = Costs.of(machine, network, 1 << 16)
    found = timed_trees.timed(network, wanted, on)
    have = {(c, p.source): 0.0 for c, p in enumerate(wanted.pieces)}
    free: dict[int, float] = {}
    for step in found.schedule.steps:
        todo = [(have[c, src], c, src, dst) for c, src, dst in step]
        heapq.heapify(todo)
        while todo:
            at, c, src, dst = heapq.heappop(todo)
            edge = network.edge_index[src, dst]
            start = max([at, *(free.get(part, 0.0) for part in on.uses[edge])])
            free.update({part: start + on.seconds[part] for part in on.uses[edge]})
            have[c, dst] = start + on.alone(edge)
    assert max(have.values()) == pytest.approx(found.seconds)
    # Two blocks of 64 KiB one after the other over a link of 25 GB/s, and its latency.
    assert found.seconds == pytest.approx(0.3e-6 + 2 * (1 << 16) / 25e9)
    assert found.least <= found.seconds


def test_a_budget_of_threadblocks_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trees are grown once for each cost of a peer, whatever lanes are tried."""
    on = topologies.load("ndv2:N=2")
    needed: list[int] = []
    openings: list[float] = []
    whole = Task.timed

    def timed(task: Task, chunks: int, by: Callable[[Network, bool, int], Costs], opening: float) -> synth.Outcome:
        openings.append(opening)
        return whole(task, chunks, by, opening)

    monkeypatch.setattr(Task, "timed", timed)
    with Solvers() as solvers:
        task = Task(Session(Network.of(on), solvers), "allreduce")
        for limit in (0, 8):
            openings.clear()
            compiling = {"instances": 1, "protocol": "LL", "max_threadblocks": limit}
            outcome, _ = synth_timed.search(task, on, task.unit, 1 << 16, compiling)
            assert outcome.result is not None
            program = outcome.result.program(**compiling)
            assert program.verify().ok
            needed.append(program.info()["max_threadblocks_per_rank"])
            assert ("few peers" in outcome.how) == (limit == 8)
    assert needed[0] > 8 >= needed[1]
    assert len(openings) == len(set(openings)) > 1


def test_a_program_follows_the_schedule_that_is_faster() -> None:
    """On a DGX-1 moving sends saves one of 29 rounds, and chunks that overtake each other cost a fifth of the time."""
    on = sim.platform("dgx1")
    with Solvers() as solvers:
        task = Task(Session(Network.of(on.topology), solvers), "allreduce")

        def search(where: Task) -> synth.Outcome:
            return where.pipelined(96)

        fewest = search(task).result
        found, _ = synth_timed.in_time(task, on.topology, search, {"max_threadblocks": on.topology.threadblocks})
        without, _ = synth_timed.in_time(task, topologies.load("ring:R=8"), search, {})
    made = found.result
    assert made is not None
    assert fewest is not None
    assert made.written is not None
    assert made.schedule == fewest.schedule
    assert made.written.total_rounds > made.schedule.total_rounds
    assert f"follows a schedule of R={made.written.total_rounds}, predicted 1." in found.how
    took, plain = (sim.Simulation(each.program(), on).run(64 << 20).time_s for each in (made, fewest))
    assert took < 0.9 * plain
    assert without.result == fewest  # without a preset


def test_trees_are_packed_once_for_both_schedules(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Network] = []
    whole = tree_packing.best

    def best(network: Network, wanted: demand.Demand, bound: Fraction, seconds: float) -> tree_packing.Forest | None:
        calls.append(network)
        return whole(network, wanted, bound, seconds)

    monkeypatch.setattr(tree_packing, "best", best)
    on = topologies.load("dgx2:N=2")
    searched: list[synth.Outcome] = []

    def search(where: Task) -> synth.Outcome:
        searched.append(where.pipelined(64))
        return searched[-1]

    with Solvers() as solvers:
        synth_timed.in_time(Task(Session(Network.of(on), solvers), "broadcast"), on, search, {})
    fewest, other = (outcome.result for outcome in searched)
    assert len(calls) == 1
    assert fewest is not None
    assert other is not None
    assert sorted(send for step in fewest.schedule.steps for send in step) == sorted(
        send for step in other.schedule.steps for send in step
    )
