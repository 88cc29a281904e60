"""Parts of synthesis by themselves: the check of schedules, pruning, reversed networks, symmetry, candidates."""

from __future__ import annotations

import itertools
import random
from fractions import Fraction

import numpy as np
import pytest

from gc3 import collectives, topologies
from gc3.errors import InternalError
from gc3.lang import StepList, stepwise
from gc3.synth import Demand, Network, Result, Solvers, Task
from gc3.synth.bounds import cuts
from gc3.synth.methods.tree_growth import pipelined
from gc3.synth.problem import check, demand, symmetry
from gc3.synth.problem.demand import Item, Piece
from gc3.synth.problem.network import switched
from gc3.synth.problem.schedule import Schedule, pruned
from small_networks import ring, session

pytestmark = pytest.mark.python_only


def line(ranks: int) -> Network:
    pairs = [pair for r in range(ranks - 1) for pair in ((r, r + 1), (r + 1, r))]
    return Network.of_relation("line", ranks, [([pair], 1) for pair in pairs])


def test_data_that_arrives_in_a_step_is_not_sent_on_in_it() -> None:
    wanted = demand.builtin("broadcast", 3, 1)
    check.check(line(3), wanted, Schedule((1, 1), (((0, 0, 1),), ((0, 1, 2),))))
    with pytest.raises(InternalError, match="step 0 sends chunk 0 from rank 1 to 2, but it is not there"):
        check.check(line(3), wanted, Schedule((1,), (((0, 0, 1), (0, 1, 2)),)))


def test_data_that_is_reduced_in_a_step_is_not_sent_on_in_it() -> None:
    wanted = [Item(frozenset({0, 1, 2}), frozenset({2}))]
    check.check_combining(line(3), wanted, Schedule((1, 1), (((0, 0, 1),), ((0, 1, 2),))))
    with pytest.raises(InternalError, match="rank 2 does not have all contributions to chunk 0"):
        check.check_combining(line(3), wanted, Schedule((1,), (((0, 0, 1), (0, 1, 2)),)))


def test_a_step_without_rounds_sends_nothing() -> None:
    wanted = demand.builtin("broadcast", 2, 1)
    check.check(line(2), wanted, Schedule((1, 0), (((0, 0, 1),), ())))
    with pytest.raises(InternalError, match="step 0 sends 1 chunks where 0 fit"):
        check.check(line(2), wanted, Schedule((0,), (((0, 0, 1),),)))


def test_of_two_arrivals_the_first_counts() -> None:
    """Rank 1 gets the chunk in step 0, and again in step 2 from rank 2, which has it from rank 1."""
    wanted = demand.builtin("broadcast", 3, 1)
    twice = Schedule((1, 1, 1), (((0, 0, 1),), ((0, 1, 2),), ((0, 2, 1),)))
    check.check(line(3), wanted, twice)
    assert pruned(twice, wanted).steps == (((0, 0, 1),), ((0, 1, 2),), ())
    late = Schedule((1, 1, 1), (((0, 0, 1),), ((0, 0, 1),), ((0, 1, 2),)))
    assert pruned(late, wanted).steps == (((0, 0, 1),), (), ((0, 1, 2),))


def test_a_graph_with_switches_joins_what_the_network_joins() -> None:
    """Also if a port does not get back to itself, or to the ports of its node; or if the pairs are arbitrary."""
    chance = random.Random(1)  # noqa: S311
    for seed in range(60):
        size = chance.randint(2, 40)
        node = chance.choice([1, 2, 3, size])
        pairs = [(a, size + b) for a in range(size) for b in range(size) if a // node != b // node or node == size]
        if seed % 5 == 0:
            pairs = [pair for pair in pairs if chance.random() < 0.9]
        tails, heads = np.array(pairs, np.int64).reshape(-1, 2).T
        vertices, arcs = switched(tails, heads, 2 * size)
        onward: list[list[int]] = [[] for _ in range(vertices)]
        for tail, head in arcs:
            onward[tail].append(head)
        found: set[tuple[int, int]] = set()
        for a in range(size):
            todo = [a]
            for vertex in todo:
                todo += onward[vertex]
            found.update((a, v) for v in todo if size <= v < 2 * size)
        assert found == set(pairs)


def test_the_graph_of_a_machine_with_switches_is_small() -> None:
    network = Network.of(topologies.load("ndv4:N=8"), 25e9)
    vertices, arcs = network.graph
    assert len(network.edges) == 64 * 63
    assert vertices < 12 * 64
    assert len(arcs) < 24 * 64


def test_a_bound_by_cuts_needs_no_small_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Above 64 bits the flows are computed in Python."""
    for scale in (Fraction(1), Fraction(10**18), Fraction(10**18 + 9, 10**18)):
        network = Network.of_relation("line", 3, [([(a, a + 1), (a + 1, a)], (a + 1) * scale) for a in (0, 1)])
        wanted = demand.builtin("allgather", 3, 6)
        every = cuts.cut_bound(network, wanted).rounds
        with monkeypatch.context() as patch:
            patch.setattr(cuts, "_ENUMERATED", 0)
            assert cuts.cut_bound(network, wanted).rounds == every == Fraction(12) / scale


def test_a_network_is_its_own_reverse_only_with_the_same_capacities() -> None:
    both = [([(0, 1)], 2), ([(1, 0)], 2)]
    assert (alike := Network.of_relation("alike", 2, both)).reversed is alike
    uneven = Network.of_relation("uneven", 2, [([(0, 1)], 2), ([(1, 0)], 1)])
    assert uneven.reversed is not uneven
    assert dict(zip(uneven.reversed.edges, uneven.reversed.capacity, strict=True)) == {(0, 1): 1, (1, 0): 2}
    bus = [([(0, 1), (1, 2)], 1), ([(1, 0)], 1), ([(2, 1)], 1)]
    assert Network.of_relation("bus", 3, bus).reversed.bounds != Network.of_relation("bus", 3, bus).bounds


def test_pieces_that_are_alike_have_no_symmetry_of_their_own() -> None:
    network = ring(3)
    pieces = [Piece(r, frozenset({(r + 1) % 3}), 1) for r in range(3)]
    turn = (1, 2, 0)
    assert symmetry.is_automorphism(network, Demand("one each", 3, 1, 0, tuple(pieces)), turn)
    twice = Demand("two each", 3, 1, 0, (*pieces, *pieces))
    assert not symmetry.is_automorphism(network, twice, turn)
    assert symmetry.largest_group(network, twice).order == 1


def test_candidates_are_better_than_what_was_found(solvers: Solvers) -> None:
    task = Task(session(solvers, ring(4)), "allgather")
    bound = Fraction(3, 2)
    every = task.candidates(3, 3, bound, None)
    assert every[0] == (3, 2)
    ratios = [Fraction(*c) for c in every]
    assert ratios == sorted(ratios)
    assert all(ratio >= bound for ratio in ratios)
    found = task.candidates(3, 3, bound, Fraction(2))
    assert found == [c for c in every if Fraction(*c) < 2]
    assert (4, 2) in every
    assert (4, 2) not in found


def test_bounds_that_edges_share_are_counted_where_they_are_narrowest() -> None:
    """Rank 0 may send 1 per round, though the others may receive 10: its broadcast of 4 takes 4 rounds."""
    out = [([(r, d) for d in range(3) if d != r], 1 if r == 0 else 10) for r in range(3)]
    into = [([(s, r) for s in range(3) if s != r], 10) for r in range(3)]
    network = Network.of_relation("uneven switch", 3, [*out, *into])
    assert cuts.cut_bound(network, demand.builtin("broadcast", 3, 4)).rounds == 4
    assert cuts.cut_bound(network, demand.builtin("allgather", 3, 2)).rounds == 2


def test_chunks_with_the_longest_way_go_first(solvers: Solvers) -> None:
    """A line: rank 0 sends the data for its far end before that for its neighbour, so no link is idle."""
    network = line(5)
    pieces = tuple(Piece(0, frozenset({target}), 3) for target in range(1, 5))
    wanted = Demand("spread", 5, 3, 0, pieces)
    schedule = pipelined(network, wanted, session(solvers, network).group(wanted), 12.0)
    check.check(network, wanted, schedule)
    assert schedule.total_rounds == 12  # what must leave rank 0, over one link


def test_images_of_a_send_count_towards_shared_bounds(solvers: Solvers) -> None:
    pairs = [(a, b) for a in range(3) for b in range(3) if a != b]
    bus = Network.of_relation("bus", 3, [*(([pair], 2) for pair in pairs), (pairs, 3)])
    wanted = demand.builtin("allgather", 3, 2)
    schedule = pipelined(bus, wanted, session(solvers, bus).group(wanted), 4.0)
    check.check(bus, wanted, schedule)
    assert schedule.total_rounds == 4  # twelve arrivals, three in a round


@pytest.mark.parametrize("name", demand.NAMES)
def test_what_a_schedule_implements_is_known_without_its_data(name: str) -> None:
    """The compiler is told the collective; what it finds by itself is the same."""
    for ranks, root, times in itertools.product((2, 3, 5), (0, 1), (1, 2)):
        root_of_it = root if collectives.BUILTIN[name].rooted else 0
        wanted = demand.builtin_problem(name, ranks, times * demand.least_chunks(name, ranks), root_of_it)
        result = Result(wanted, ring(ranks), Schedule((), ()))
        made, found = result.algorithm(), stepwise(StepList("", name, name, ranks, result.chunk_list(), ()))
        assert (made.collective, made.chunks, made.root) == (found.collective, found.chunks, found.root)
        assert made.in_place == found.in_place
