"""Packed trees: the load of the fullest link or switch is the bound, on machines of all kinds."""

from __future__ import annotations

from fractions import Fraction

import pytest

from gc3 import topologies
from gc3.synth import Network, Session, Solvers, Task
from gc3.synth.methods import tree_packing
from gc3.synth.problem import demand
from gc3.synth.result import Result
from own_bounds import Machine, replay
from small_networks import AMPLE

pytestmark = pytest.mark.python_only

# Machines, the bandwidth of a round in GB/s, and R/C: ranks times that bandwidth divided by R/C is ForestColl's GB/s.
MACHINES: list[tuple[str, float | None, Fraction]] = [
    ("dgx1", None, Fraction(7, 6)),
    ("ring:R=8", None, Fraction(7, 2)),
    ("torus:X=4,Y=4", None, Fraction(15, 4)),
    ("fat_tree:R=8,leaf=4,taper=2", None, Fraction(7)),
    ("hierarchical:N=2,G=8,nics=8", 25, Fraction(15, 13)),  # two boxes of 8 A100: 346.67 GB/s
    ("dgx2", None, Fraction(5, 2)),
    ("ndv2:N=2", None, Fraction(8)),
    ("summit:N=2", None, Fraction(3)),
    ("lassen:N=2", None, Fraction(2)),
    ("mi300x:N=2", None, Fraction(125, 83)),
    ("ndv4:N=2", 25, Fraction(15, 13)),
]


def forest_of(network: Network, name: str, root: int = 0) -> tuple[tree_packing.Forest | None, Fraction]:
    wanted = demand.builtin(name, network.ranks, 1, root)
    with Solvers() as solvers:
        bound = Session(network, solvers).any_steps(wanted).rounds
    return tree_packing.best(network, wanted, bound, AMPLE), bound


@pytest.mark.parametrize(("spec", "unit", "ratio"), MACHINES, ids=str)
def test_load_is_the_bound(spec: str, unit: float | None, ratio: Fraction) -> None:
    network = Network.of(topologies.load(spec), None if unit is None else unit * 1e9)
    forest, bound = forest_of(network, "allgather")
    assert forest is not None
    assert forest.ratio == bound == ratio
    assert {r: sum(t.copies for t in forest.trees if t.root == r) for r in range(network.ranks)} == dict.fromkeys(
        range(network.ranks), forest.copies
    )


def without(network: Network, lost: set[tuple[int, int]]) -> Network:
    relation = [([network.edges[e] for e in members], chunks) for members, chunks in network.bounds]
    return Network.of_relation("broken", network.ranks, [(p, c) for p, c in relation if not lost & set(p)])


def test_a_machine_less_a_link_or_a_gpu() -> None:
    network = Network.of(topologies.load("dgx1"))
    broken = without(network, {network.edges[0], network.edges[0][::-1]})
    number = {r: r - 1 for r in range(1, 8)}
    kept = [([(number[a], number[b])], c) for (a, b), c in zip(network.edges, network.capacity, strict=True) if a and b]
    for left in (broken, Network.of_relation("seven", 7, kept)):
        for name in ("allgather", "broadcast"):
            forest, bound = forest_of(left, name, 2 if name == "broadcast" else 0)
            assert forest is not None
            assert forest.ratio == bound


# Reductions are distributions reversed: those on the larger machines are for the night.
@pytest.mark.parametrize(
    ("spec", "name"),
    [
        pytest.param(spec, name, marks=[pytest.mark.nightly] if name.startswith("reduce") and small == 0 else [])
        for spec, small in (("dgx1", 1), ("dgx2", 0), ("hierarchical:N=2,G=4,nics=2", 1), ("mi300x:N=2", 0))
        for name in ("allgather", "reducescatter", "broadcast", "reduce", "allreduce")
    ],
)
def test_rounds_are_reduced_to_the_load(name: str, spec: str) -> None:
    """With more chunks R/C approaches the bound, and the schedules are correct."""
    network = Network.of(topologies.load(spec))
    relation = tuple((tuple(network.edges[e] for e in m), Fraction(c)) for m, c in network.bounds)
    with Solvers() as solvers:
        task = Task(Session(network, solvers), name)
        bound = task.any_steps_searched().rounds
        above: list[float] = []
        for chunks in (8, 64):
            outcome = task.pipelined(chunks * task.unit)
            assert outcome.result is not None
            cut, _, rounds = outcome.result.cost
            above.append(float(Fraction(rounds, cut) / bound) - 1)
            assert f"R/C tends to {bound}" in outcome.how or above[-1] <= 0.01
            schedule = outcome.result.schedule
            replay(Machine(network.ranks, relation), name, cut, 0, schedule.rounds, schedule.steps)
        assert above[1] < above[0] / 3 or above[1] < 0.01


def test_trees_of_a_few_chunks_are_grown_for_them() -> None:
    """Packed trees may be deep; on 64 similar ranks other trees take hardly more rounds than the bound."""
    with Solvers() as solvers:
        task = Task(Session(Network.of(topologies.load("hierarchical:N=8,G=8,nics=8")), solvers), "allgather")
        outcome = task.pipelined(26)
    assert outcome.result is not None
    assert 182 <= outcome.result.cost[2] <= 184


def test_not_enough_time() -> None:
    network = Network.of(topologies.load("dgx1"))
    wanted = demand.builtin("allgather", 8, 1)
    assert tree_packing.best(network, wanted, Fraction(7, 6), 0.0) is None
    assert tree_packing.packed(network, wanted, Fraction(1), 100.0) is None  # there are none


def test_what_trees_are_for() -> None:
    for name, fits in (("allgather", True), ("broadcast", True), ("alltoall", False), ("gather", False)):
        assert tree_packing.applies(demand.builtin(name, 4, 4)) == fits


DEPTHS = {"ndv4": 2, "dgx2:N=2": 5, "dgx1": 5, "torus:X=4,Y=4": 5}


@pytest.mark.parametrize(("spec", "most"), DEPTHS.items(), ids=str)
def test_trees_of_one_root_are_shallow(spec: str, most: int) -> None:
    """As deep as the machine requires, or little deeper, and with few copies: bandwidths need not be whole."""
    network = Network.of(topologies.load(spec))
    forest, bound = forest_of(network, "broadcast")
    assert forest is not None
    assert (forest.ratio, forest.rounds) == (bound, bound.numerator)
    for tree in forest.trees:
        depth = [0]
        for _, before in tree.branches:
            depth.append(depth[before + 1] + 1)
        assert len(depth) == network.ranks
        assert max(depth) <= most


def test_lanes_that_need_too_many_threadblocks_are_left_out_before_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    with Solvers() as solvers:
        made = Task(Session(Network.of(topologies.load("dgx1")), solvers), "allreduce").pipelined(64).result
    assert made is not None
    assert made.lanes > 1

    def within(most: int) -> str:
        return made.program(max_threadblocks=most).text

    limits = [100, 40, 20]
    guessed = [within(most) for most in limits]

    def all_lanes(self: Result, _most: int) -> int:
        return self.lanes

    monkeypatch.setattr(Result, "_lanes_within", all_lanes)
    assert guessed == [within(most) for most in limits]


def test_a_bound_by_cuts_that_is_reached_needs_no_solver() -> None:
    network = Network.of(topologies.load("star:R=4"))
    wanted = demand.builtin("alltoall", 4, 4)
    session = Session(network, Solvers())  # not entered: it cannot solve
    bound = session.by_cuts(wanted)
    assert session.any_steps(wanted, taken=int(bound.rounds)) == bound
    assert session.any_steps(wanted) == bound
