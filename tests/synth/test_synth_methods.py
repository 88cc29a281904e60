"""The methods of synthesis one by one: bounds and certificates, symmetries, the checker, greedy choices and flows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gc3 import topologies
from gc3.errors import InternalError
from gc3.support.maximum_flow import Flow
from gc3.synth import Demand, Network, Schedule, Solvers, Task
from gc3.synth.bounds import cuts, flow_relaxation
from gc3.synth.methods import flow_over_time, greedy
from gc3.synth.methods.tree_growth import fullest_of_edges
from gc3.synth.problem import check, demand, schedule, symmetry
from gc3.synth.problem.demand import Item
from gc3.synth.session import Session
from small_networks import random_network, ring, session, switch

pytestmark = pytest.mark.python_only


def test_every_cut_agrees_with_maximum_flow(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(12):
        network = random_network(seed)
        for name in ("allgather", "gather", "broadcast"):
            wanted = demand.builtin(name, network.ranks, 2)
            every = cuts.cut_bound(network, wanted).rounds
            with monkeypatch.context() as patch:
                patch.setattr(cuts, "_ENUMERATED", 0)
                by_flow = cuts.cut_bound(network, wanted).rounds
            assert by_flow == every if network.point_to_point else by_flow > 0


def test_the_room_of_sets_of_ranks_is_the_same_for_large_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets are taken one by one where flags of all their edges would not fit the memory."""
    chance = np.random.default_rng(4)
    for network in [random_network(seed) for seed in range(8)] + [switch(4)]:
        inside = chance.random((20, network.ranks)) < 0.5
        room = cuts.rooms(network, inside)
        with monkeypatch.context() as patch:
            patch.setattr(cuts, "_AT_ONCE", 1)
            assert np.array_equal(cuts.rooms(network, inside), room)
        assert [cuts.exact_room(network, row) for row in inside] == room.tolist()


def test_prices_prove_no_more_than_is_true(solvers: Solvers) -> None:
    """Any prices give a valid bound: random ones stay below the optimum, and inconsistent parts prove nothing."""
    network = ring(4)
    wanted = demand.builtin("allgather", 4, 2)
    nothing = symmetry.trivial(network)
    fewest = Task(session(solvers, network), "allgather").least_rounds(2, 2).result
    assert fewest is not None
    generator = np.random.default_rng(7)
    for _ in range(50):
        bounds = generator.integers(0, 9, (len(network.bounds), 2))
        edge = np.zeros((len(network.edges), 2), np.int64)
        for b, (members, _) in enumerate(network.bounds):
            edge[list(members)] += bounds[b]
        parts = {i: {t: edge // 3 for t in piece.targets} for i, piece in enumerate(wanted.pieces)}
        proven = flow_relaxation.proven_rounds(network, wanted, nothing, flow_relaxation.Prices(bounds, parts))
        assert 0 <= proven <= fewest.cost[2]
        cheat = {i: {t: edge // 2 + 1 for t in piece.targets} for i, piece in enumerate(wanted.pieces)}
        assert flow_relaxation.proven_rounds(network, wanted, nothing, flow_relaxation.Prices(bounds, cheat)) == 0
    assert flow_relaxation.proven_rounds(network, wanted, nothing, flow_relaxation.Prices(-bounds, {})) == 0
    lopsided = np.zeros((len(network.bounds), 2), np.int64)
    lopsided[0] = 1
    group = symmetry.largest_group(network, wanted)
    assert group.order == 4
    assert flow_relaxation.proven_rounds(network, wanted, group, flow_relaxation.Prices(lopsided, {})) == 0


def test_symmetric_bounds_are_the_full_ones(solvers: Solvers) -> None:
    network = Network.of(topologies.load("torus:X=3,Y=2"))
    for name, chunks in (("allgather", 1), ("alltoall", 6)):
        wanted = demand.builtin(name, 6, chunks)
        groups = symmetry.largest_group(network, wanted).descending()
        found = {flow_relaxation.bound(solvers, network, wanted, 3, g)[0] for g in groups}
        assert len(found) == 1


@pytest.mark.parametrize(
    ("spec", "order"), [("dgx1", 4), ("z52", 8), ("hypercube:D=4", 16), ("dgx1:N=2", 8), ("line:R=3", 1)]
)
def test_groups_act_freely(spec: str, order: int) -> None:
    network = Network.of(topologies.load(spec))
    wanted = demand.builtin("allgather", network.ranks, 1)
    found = list(symmetry.largest_group(network, wanted).descending())
    assert found[0].order == order
    assert found[-1].order == 1
    for group in found:
        for element in group.elements:
            assert symmetry.is_automorphism(network, wanted, element)
            assert element == group.elements[0] or all(a != b for a, b in enumerate(element))
        assert {tuple(a[i] for i in b) for a in group.elements for b in group.elements} == set(group.elements)
    rooted = demand.builtin("broadcast", network.ranks, 1)
    assert [g.order for g in symmetry.largest_group(network, rooted).descending()] == [1]


@pytest.mark.parametrize(
    "spec", ["dgx1", "ndv2:N=2", "dgx2", "fat_tree:R=8,leaf=4,taper=2", "torus:X=3,Y=4", "ndv4:N=3"]
)
def test_orbits_are_images(spec: str) -> None:
    network = Network.of(topologies.load(spec))
    members = [frozenset(m) for m, _ in network.bounds]
    for group in symmetry.largest_group(network, demand.builtin("allgather", network.ranks, 1)).descending():
        assert list(group.edge_orbits) == [min(moved[e] for moved in group.edges) for e in range(len(network.edges))]
        images = [{members.index(frozenset(h[e] for e in bound)) for h in group.edges} for bound in members]
        assert [group.bounds[group.bound_orbits[b]] for b in range(len(members))] == [(min(i), len(i)) for i in images]
        assert {tuple(a[i] for i in b) for a in group.moving.elements for b in group.moving.elements} == {
            *group.moving.elements
        }
        for moved in group.moving.edges[1:]:
            assert all(frozenset(moved[e] for e in members[b]) != members[b] for b, _ in group.bounds)


def test_trees_of_one_orbit_load_a_torus_evenly(solvers: Solvers) -> None:
    # The images of a tree load all links of a direction alike: prices must follow the load while it grows.
    outcome = Task(Session(Network.of(topologies.load("torus:X=8,Y=8")), solvers), "allgather").pipelined(1)
    assert outcome.result is not None
    assert outcome.result.cost[2] == 16  # 63 chunks over 4 links, rounded up


def test_a_large_machine_needs_no_packing(solvers: Solvers) -> None:
    network = Network.of(topologies.load("ndv4:N=16"), 25e9)
    task = Task(Session(network, solvers), "allgather")
    outcome = task.pipelined(1)
    assert outcome.how == "trees, pipelined: with more chunks R/C tends to 15"
    assert outcome.result is not None
    assert fullest_of_edges(network, outcome.result.schedule) == 15 == task.any_steps().rounds


def test_what_is_no_automorphism() -> None:
    network = Network.of(topologies.load("dgx1"))
    wanted = demand.builtin("allgather", 8, 1)
    assert not symmetry.is_automorphism(network, wanted, (1, 0, 2, 3, 4, 5, 6, 7))
    shared = switch(3)
    bus = Network.of_relation(
        "bus", 3, [([network_edge], 1) for network_edge in shared.edges] + [([(0, 1), (1, 0)], 1)]
    )
    assert not symmetry.is_automorphism(bus, demand.builtin("allgather", 3, 1), (1, 2, 0))
    assert not symmetry.is_automorphism(shared, demand.builtin("gather", 3, 1), (1, 2, 0))


def valid() -> tuple[Network, Demand, Schedule]:
    network = ring(4)
    wanted = demand.builtin("allgather", 4, 2)
    return network, wanted, greedy.balanced(network, wanted, symmetry.trivial(network))


def test_balance_takes_no_round_too_many() -> None:
    """Ranks 1, 2 and 3 are joined to 0, and 4 to 3: in step 2 rank 3 gets two chunks over one of its two edges."""
    edges = [pair for a, b in ((0, 1), (0, 2), (0, 3), (3, 4)) for pair in ((a, b), (b, a))]
    network = Network.of_relation("tree", 5, [([edge], 1) for edge in edges])
    wanted = demand.builtin("allgather", 5, 1)
    found = greedy.balanced(network, wanted, symmetry.trivial(network))
    check.check(network, wanted, found)
    assert found.rounds == (1, 2, 2)


def test_the_checker_catches_every_mutant() -> None:
    network, wanted, good = valid()
    check.check(network, wanted, good)
    sends = [(s, send) for s, step in enumerate(good.steps) for send in step]
    for k, (step, (chunk, src, dst)) in enumerate(sends):
        without = Schedule.of(good.rounds, sends[:k] + sends[k + 1 :])
        with pytest.raises(InternalError, match=r"does not get to|is not there"):
            check.check(network, wanted, without)
        opposite = Schedule.of(good.rounds, [*sends[:k], (step, (chunk, src, (src + 2) % 4)), *sends[k + 1 :]])
        with pytest.raises(InternalError, match="does not exist"):
            check.check(network, wanted, opposite)
        with pytest.raises(InternalError, match="twice over the same link"):
            check.check(network, wanted, Schedule.of(good.rounds, [*sends, (step, (chunk, src, dst))]))
    for step in range(len(good.rounds)):
        fewer = tuple(r - (s == step) for s, r in enumerate(good.rounds))
        with pytest.raises(InternalError, match=r"chunks where \d+ fit"):
            check.check(network, wanted, replace(good, rounds=fewer))
    with pytest.raises(InternalError, match="do not match"):
        check.check(network, wanted, replace(good, rounds=good.rounds[:1]))


def test_the_checker_of_reductions() -> None:
    network = ring(4)
    wanted = [Item(frozenset(range(4)), frozenset({0}))]
    good = Schedule.of((1, 1), [(0, (0, 2, 1)), (0, (0, 3, 0)), (1, (0, 1, 0))])
    check.check_combining(network, wanted, good)
    for sends, why in (
        ([(0, (0, 2, 1)), (1, (0, 1, 0))], "does not have all contributions"),
        (
            [(0, (0, 2, 1)), (0, (0, 2, 3)), (1, (0, 1, 0)), (1, (0, 3, 0))],
            "adds a contribution to chunk 0 of rank 0 twice",
        ),
    ):
        with pytest.raises(InternalError, match=why):
            check.check_combining(network, wanted, Schedule.of((1, 1), sends))


def test_pruning_and_stretching() -> None:
    network, wanted, good = valid()
    wasteful = Schedule(
        (*good.rounds, 1),
        (*good.steps, tuple((c, 0, 1) for c in range(2))),  # what rank 1 has already
    )
    lean = schedule.pruned(wasteful, wanted)
    assert lean.send_count == good.send_count
    check.check(network, wanted, lean)
    longer = schedule.stretched(good, network, good.total_rounds)
    assert longer is not None
    assert longer.rounds == (1,) * good.total_rounds
    check.check(network, wanted, longer)
    assert schedule.stretched(good, network, good.total_rounds + 1) is None


def test_greedy_with_shared_bounds() -> None:
    network = switch(4)
    wanted = demand.builtin("allgather", 4, 1)
    found = next(filter(None, (greedy.greedy(network, wanted, [1, 1, 1], seed) for seed in range(99))))
    check.check(network, wanted, found)
    assert greedy.greedy(network, wanted, [1, 1], 0) is None


def test_greedy_takes_the_rarest_chunks_first() -> None:
    """If ranks 1 and 2 got the same chunk first, they would have nothing to exchange in the second step."""
    edges = [(0, 1), (0, 2), (1, 2), (2, 1)]
    network = Network.of_relation("pair with a source", 3, [([edge], 1) for edge in edges])
    wanted = demand.builtin("broadcast", 3, 3, 0)
    assert all(greedy.greedy(network, wanted, [1, 1], seed) for seed in range(20))


def test_what_is_reachable_after_a_flow_is_a_side_of_the_least_cut() -> None:
    graph = Flow(4)
    for tail, head, capacity in ((0, 1, 5), (1, 2, 2), (0, 2, 1), (2, 3, 9)):
        graph.arc(tail, head, capacity)
    assert graph.run(0, 3) == 3
    assert graph.reachable(0) == {0, 1}


def test_flows_by_maximum_flow() -> None:
    network = Network.of(topologies.load("dgx1"))
    for name, chunks in (("scatter", 48), ("gather", 6)):
        wanted = demand.builtin(name, 8, chunks, 1)
        found = flow_over_time.one_sided_schedule(network, wanted, [1] * 7)
        assert found is not None
        check.check(network, wanted, found)
        assert flow_over_time.one_sided_schedule(network, wanted, [1] * 6) is None
    assert cuts.fewest_single_rounds(network, demand.builtin("gather", 8, 6, 1), 1, 20) == 7


def test_what_one_rank_needs_bounds_the_rest(solvers: Solvers) -> None:
    here = session(solvers, "dgx1")
    for name, chunks, steps in (("allgather", 1, 2), ("broadcast", 6, 3)):
        wanted = demand.builtin(name, 8, chunks, 1)
        alone, all_of_it = here.sink_bound(wanted, steps).rounds, here.in_steps(wanted, steps).rounds
        assert here.any_steps(wanted).rounds <= alone <= all_of_it


def test_reversed_networks() -> None:
    both_ways = Network.of(topologies.load("dgx1"))
    assert both_ways.reversed is both_ways
    one_way = Network.of_relation("one way", 3, [([(0, 1)], 1), ([(1, 2)], 2)])
    assert one_way.reversed.edges == ((1, 0), (2, 1))
    assert one_way.reversed.reversed == one_way
