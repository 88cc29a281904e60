"""Schedules repaired after a loss: right on what is left, and mostly the sends of before."""

from __future__ import annotations

from fractions import Fraction

import pytest

import gc3
from gc3 import collectives, synth, topologies
from gc3.synth import Network, Result, Session, Solvers, Task, repaired
from own_bounds import Machine, replay

pytestmark = pytest.mark.python_only


def whole(spec: str, name: str, chunks: int = 4, root: int = 0) -> tuple[topologies.Topology, Result]:
    machine = topologies.load(spec)
    with Solvers() as solvers:
        task = Task(Session(Network.of(machine), solvers), name, root)
        result = task.pipelined(chunks * task.unit).result
    assert result is not None
    return machine, result


def machine_of(network: Network) -> Machine:
    return Machine(network.ranks, tuple((tuple(network.edges[e] for e in m), Fraction(c)) for m, c in network.bounds))


@pytest.mark.parametrize("name", synth.NAMES)
@pytest.mark.parametrize(
    ("spec", "links", "lost"),
    [
        ("dgx1", (), (3,)),
        ("dgx1", ((0, 1), (4, 7)), ()),
        ("dgx1", ((4, 5),), (1, 6)),
        ("ring:R=5", (), (2,)),
        ("hierarchical:N=2,G=4,nics=1", (), (5,)),
        ("mi300x:N=2", (), (0, 9)),
    ],
)
def test_what_is_left_is_served(
    name: str, spec: str, links: tuple[tuple[int, int], ...], lost: tuple[int, ...]
) -> None:
    machine, before = whole(spec, name, 2, root=4)
    left = [r for r in range(machine.rank_count) if r not in lost]
    network = Network.of(topologies.without(machine, links, lost))
    after = repaired(before, network, left)
    assert after.problem.ranks == len(left)
    root = left.index(4) if before.problem.root else 0
    replay(machine_of(network), name, after.chunks, root, after.schedule.rounds, after.schedule.steps)
    assert after.program().verify().ok


def test_only_what_hung_below_a_loss_moves() -> None:
    machine, before = whole("ndv4:N=2", "allgather", 8)
    left = [r for r in range(16) if r != 3]
    after = repaired(before, Network.of(topologies.without(machine, ranks=[3])), left)
    blocks = before.chunks
    kept = {
        (left.index(c // blocks) * blocks + c % blocks, left.index(src), left.index(dst))
        for sends in before.schedule.steps
        for c, src, dst in sends
        if 3 not in (c // blocks, src, dst)
    }
    assert kept <= {send for sends in after.schedule.steps for send in sends}
    with Solvers() as solvers:
        bound = Session(after.network, solvers).any_steps(after.problem.demands[0]).rounds
    assert after.schedule.total_rounds < Fraction(3, 2) * bound


def test_without_a_loss_nothing_moves() -> None:
    machine, before = whole("dgx1", "allreduce")
    again = repaired(before, Network.of(machine), range(8))
    assert sorted(s for step in again.schedule.steps for s in step) == sorted(
        s for step in before.schedule.steps for s in step
    )


def test_what_cannot_be_repaired() -> None:
    machine, before = whole("ring:R=4", "broadcast", root=1)
    smaller = Network.of(topologies.without(machine, ranks=[1]))
    with pytest.raises(gc3.UserError, match="rank 1, the root of this broadcast, is lost"):
        repaired(before, smaller, [0, 2, 3])
    for left in ([0, 1], [0, 1, 1], [0, 1, 4]):
        with pytest.raises(gc3.UserError, match="expected each rank that is left once"):
            repaired(before, smaller, left)
    apart = Network.of(topologies.without(machine, [(0, 1), (0, 3)]))
    with pytest.raises(gc3.UserError, match="some data cannot reach its targets"):
        repaired(before, apart, range(4))
    moved = collectives.custom("moved", inputs=[1, 0, 0, 0], outputs=[0, 0, 1, 0], expect={(2, 0): [(0, 0)]})
    with Solvers() as solvers:
        result = Task(Session(Network.of(machine), solvers), moved).pipelined(1).result
    assert result is not None
    with pytest.raises(gc3.UserError, match="'moved' is not built in"):
        repaired(result, Network.of(machine), range(4))
