"""Synthesis: instances decided as a plain SMT encoding decides them, the paper's tables, bounds and their proofs."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import plain_encoding
import pytest

from gc3 import collectives, synth, topologies
from gc3.checking import Case
from gc3.errors import InternalError, UserError
from gc3.synth import (
    FOUND,
    IMPOSSIBLE,
    OPEN,
    Demand,
    Network,
    Schedule,
    Session,
    Solvers,
    Task,
    balance,
    check,
    cuts,
    demand,
    flows,
    greedy,
    prices,
    relaxation,
    schedule,
    symmetry,
)

Row = tuple[str, int, int, int]

# Tables 4 and 5 of 001. The root of rooted rows is rank 0 of the rings of section 2.2, which is rank 1 of figure 1.
DGX1: list[Row] = [
    *(("allgather", c, c + 1, c + 1) for c in range(1, 7)),
    *(("allgather", *r) for r in ((6, 3, 7), (2, 2, 3))),
    *(("broadcast", *r) for r in ((2, 2, 2), (6, 3, 3), (12, 4, 4), (18, 5, 5), (6, 3, 5))),
    *(("gather", c, c + 1, c + 1) for c in range(1, 7)),
    *(("gather", *r) for r in ((6, 3, 7), (2, 2, 3))),
    *(("scatter", 8 * c, s, r) for c, s, r in ((1, 2, 2), (6, 7, 7), (6, 3, 7), (2, 2, 3))),
    *(("alltoall", *r) for r in ((8, 3, 3), (8, 2, 3), (24, 8, 8), (24, 2, 8))),
    *(("allreduce", 8 * c, 2 * c + 2, 2 * c + 2) for c in range(1, 7)),
    *(("allreduce", *r) for r in ((48, 6, 14), (16, 4, 6))),
    *(("reducescatter", *r) for r in ((48, 3, 7), (16, 2, 3))),
    ("reduce", 18, 5, 5),
]
Z52: list[Row] = [
    *(("allgather", *r) for r in ((1, 4, 4), (2, 7, 7), (2, 4, 7))),
    *(("allreduce", *r) for r in ((8, 8, 8), (16, 14, 14), (16, 8, 14))),
    *(("broadcast", 2 * m, 3 + m, 3 + m) for m in range(1, 6)),
    *(("gather", *r) for r in ((1, 4, 4), (2, 4, 7))),
    ("alltoall", 8, 4, 8),
]
TABLES = [("dgx1", row) for row in DGX1] + [("z52", row) for row in Z52]


@pytest.fixture(scope="module")
def solvers() -> Iterator[Solvers]:
    with Solvers() as started:
        started.warm_up()  # before the watch on child processes looks
        yield started


def session(solvers: Solvers, spec: str | Network, seconds: float = 60.0, **options: Any) -> Session:
    network = spec if isinstance(spec, Network) else Network.of(topologies.load(spec))
    return Session(network, solvers, time.monotonic() + seconds, **options)


def ring(ranks: int) -> Network:
    pairs = [(r, (r + d) % ranks) for r in range(ranks) for d in (1, -1)]
    return Network.of_relation("ring", ranks, [([pair], 1) for pair in pairs])


def switch(ranks: int, chunks: int = 1) -> Network:
    everyone = range(ranks)
    out = [([(r, d) for d in everyone if d != r], chunks) for r in everyone]
    into = [([(s, r) for s in everyone if s != r], chunks) for r in everyone]
    return Network.of_relation("switch", ranks, [*out, *into])


def random_network(seed: int) -> Network:
    chance = random.Random(seed)  # noqa: S311
    ranks = chance.choice((3, 3, 4))
    pairs = {(r, (r + 1) % ranks) for r in range(ranks)}
    pairs |= {(a, b) for a in range(ranks) for b in range(ranks) if a != b and chance.random() < 0.4}
    relation: list[tuple[list[tuple[int, int]], int]] = [([pair], chance.choice((1, 1, 2))) for pair in sorted(pairs)]
    if chance.random() < 0.4:  # a shared bus
        relation.append((chance.sample(sorted(pairs), 3), 1))
    return Network.of_relation(f"random {seed}", ranks, relation)


@pytest.mark.parametrize(("spec", "row"), TABLES, ids=lambda v: v if isinstance(v, str) else "-".join(map(str, v)))
def test_tables(solvers: Solvers, spec: str, row: Row) -> None:
    """Every row is found, with those numbers; every other one is run."""
    name, chunks, steps, rounds = row
    rooted = name in ("broadcast", "reduce", "gather", "scatter")
    outcome = Task(session(solvers, spec), name, root=1 if rooted else 0).solve(chunks, steps, rounds)
    assert outcome.status == FOUND
    assert outcome.result is not None
    assert outcome.result.cost == (chunks, steps, rounds)
    # (6, 3, 5) of Broadcast is dominated by (6, 3, 3); the others have the fewest rounds for their C and S.
    assert (outcome.fewest is not None) == (row != ("broadcast", 6, 3, 5))
    program = outcome.result.program()
    assert program.collective.name == name
    assert program.verify().ok
    case = Case(program.collective, 3, "int32")
    inputs, outputs = case.inputs(), case.poisoned_outputs()
    program.run(inputs, outputs=outputs, count=3, dtype="int32")
    assert case.compare(inputs, outputs).ok


IMPOSSIBLES: list[tuple[Row, int]] = [
    (("allgather", 3, 2, 4), 0),
    (("allgather", 4, 2, 5), 0),
    (("allgather", 5, 3, 5), 0),
    (("allgather", 6, 3, 6), 0),
    (("allgather", 7, 3, 8), 0),
    (("allgather", 7, 4, 8), 0),
    (("broadcast", 3, 2, 2), 1),
    (("broadcast", 7, 3, 3), 1),
    (("broadcast", 13, 4, 4), 1),
    (("broadcast", 19, 5, 5), 1),
    (("alltoall", 8, 2, 2), 0),
    (("alltoall", 32, 3, 10), 0),
    (("gather", 3, 2, 4), 1),
    (("gather", 5, 3, 5), 1),
    (("reducescatter", 56, 3, 8), 0),
]


@pytest.mark.parametrize(
    ("row", "root"), IMPOSSIBLES, ids=lambda v: "-".join(map(str, v)) if isinstance(v, tuple) else ""
)
def test_what_the_paper_implies_is_impossible(solvers: Solvers, row: Row, root: int) -> None:
    name, chunks, steps, rounds = row
    outcome = Task(session(solvers, "dgx1"), name, root).solve(chunks, steps, rounds)
    assert outcome.status == IMPOSSIBLE
    assert outcome.how
    assert outcome.seconds < 2


@pytest.mark.parametrize("seed", range(12))
def test_as_the_plain_encoding(solvers: Solvers, seed: int) -> None:
    """Small random networks, shared buses among them: the same answer as z3 gives to section 3.4."""
    network = random_network(seed)
    chance = random.Random(seed + 1000)  # noqa: S311
    here = session(solvers, network)
    for name in chance.sample(("allgather", "broadcast", "alltoall", "gather", "scatter"), 3):
        task = Task(here, name, chance.randrange(network.ranks) if name in ("broadcast", "gather", "scatter") else 0)
        least = task.least_steps()
        for chunks in {task.unit, 2 if task.unit == 1 and name != "gather" else task.unit}:
            steps = least + chance.randrange(2)
            rounds = max(steps, int(task.any_steps().rounds * chunks)) + chance.randrange(2)
            wanted = task.demand(chunks)
            found = here.solve(wanted, steps, rounds)
            expected, other = plain_encoding.solve(network, wanted, steps, rounds, 20)
            assert found.status == {"sat": FOUND, "unsat": IMPOSSIBLE}[expected], (name, chunks, steps, rounds)
            if other is not None:
                check.check(network, wanted, other)
                bound = here.in_steps(wanted, steps)
                assert bound.rounds <= rounds, "the bound is not one"


def test_the_allgather_frontier(solvers: Solvers) -> None:
    points = list(Task(session(solvers, "dgx1"), "allgather").frontier(4, 8))
    assert [(p.chunks, p.steps, p.rounds) for p in points] == [(2, 2, 3), (6, 3, 7)]
    assert all(p.optimal and not p.open for p in points)
    assert (points[0].latency, points[-1].bandwidth) == (True, True)


def test_the_broadcast_frontier_misses_nothing(solvers: Solvers) -> None:
    """(2, 2, 2) has a common factor of C and R and dominates (3, 2, 4); the rest goes on past table 4."""
    points = list(Task(session(solvers, "dgx1"), "broadcast", root=1).frontier(2, 8))
    assert [(p.chunks, p.steps, p.rounds) for p in points] == [(2, 2, 2)] + [(6 * m, 2 + m, 2 + m) for m in range(1, 7)]
    assert all(p.optimal for p in points)


def test_the_alltoall_frontier(solvers: Solvers) -> None:
    points = list(Task(session(solvers, "dgx1"), "alltoall").frontier(6, 8))
    assert [(p.chunks, p.steps, p.rounds) for p in points] == [(24, 2, 8)]


def test_bounds_without_a_solver() -> None:
    dgx1, z52 = (Network.of(topologies.load(spec)) for spec in ("dgx1", "z52"))
    for network, name, steps, ratio in (
        (dgx1, "allgather", 2, Fraction(7, 6)),
        (dgx1, "alltoall", 2, Fraction(1, 3)),
        (dgx1, "broadcast", 2, Fraction(1, 6)),
        (z52, "allgather", 4, Fraction(7, 2)),
        (z52, "alltoall", 4, Fraction(1)),
    ):
        wanted = demand.builtin(name, 8, 8)
        assert cuts.least_steps(network, wanted) == steps
        assert cuts.cut_bound(network, wanted).rounds / 8 == ratio
    torus = Network.of(topologies.load("torus:X=4,Y=4"))
    assert cuts.cut_bound(torus, demand.builtin("allgather", 16, 4)).rounds == 15
    # Of two nodes with one NIC for two GPUs, what crosses decides; it is found among 2^16 cuts by maximum flow.
    boxes = Network.of(topologies.load("dgx1:N=2"))
    crossing = cuts.cut_bound(boxes, demand.builtin("allgather", 16, 1))
    assert (crossing.rounds, crossing.proof) == (2, "what must reach ranks 0, 1, 2, 3, 4, 5, 6, 7")
    assert cuts.distance_bound(torus, demand.builtin("alltoall", 16, 16)).rounds == 8


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


@pytest.mark.parametrize(
    ("spec", "name", "steps", "ratio"),
    [
        ("dgx1", "allgather", 2, Fraction(3, 2)),
        ("dgx1", "allgather", 3, Fraction(7, 6)),
        ("dgx1", "broadcast", 5, Fraction(5, 18)),
        ("dgx1", "broadcast", 7, Fraction(7, 30)),
        ("dgx1", "alltoall", 2, Fraction(1, 3)),
        ("dgx1", "scatter", 2, Fraction(3, 16)),
        ("z52", "broadcast", 8, Fraction(4, 5)),
        ("z52", "allgather", 4, Fraction(7, 2)),
    ],
)
def test_bounds_by_prices(solvers: Solvers, spec: str, name: str, steps: int, ratio: Fraction) -> None:
    assert (
        Task(session(solvers, spec), name, 1 if name in ("broadcast", "scatter") else 0).in_steps(steps).rounds == ratio
    )


def test_prices_prove_no_more_than_is_true(solvers: Solvers) -> None:
    """Any prices give a bound: random ones stay below what is possible, parts that cheat prove nothing."""
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
        proven = prices.proven_rounds(network, wanted, nothing, prices.Prices(bounds, parts))
        assert 0 <= proven <= fewest.cost[2]
        cheat = {i: {t: edge // 2 + 1 for t in piece.targets} for i, piece in enumerate(wanted.pieces)}
        assert prices.proven_rounds(network, wanted, nothing, prices.Prices(bounds, cheat)) == 0
    assert prices.proven_rounds(network, wanted, nothing, prices.Prices(-bounds, {})) == 0
    lopsided = np.zeros((len(network.bounds), 2), np.int64)
    lopsided[0] = 1
    group = next(symmetry.groups(network, wanted))
    assert group.order == 4
    assert prices.proven_rounds(network, wanted, group, prices.Prices(lopsided, {})) == 0


def test_symmetric_bounds_are_the_full_ones(solvers: Solvers) -> None:
    network = Network.of(topologies.load("torus:X=3,Y=2"))
    for name, chunks in (("allgather", 1), ("alltoall", 6)):
        wanted = demand.builtin(name, 6, chunks)
        found = {relaxation.bound(solvers, network, wanted, 3, g)[0] for g in symmetry.groups(network, wanted)}
        assert len(found) == 1


@pytest.mark.parametrize(
    ("spec", "order"), [("dgx1", 4), ("z52", 8), ("hypercube:D=4", 16), ("dgx1:N=2", 8), ("line:R=3", 1)]
)
def test_groups_act_freely(spec: str, order: int) -> None:
    network = Network.of(topologies.load(spec))
    wanted = demand.builtin("allgather", network.ranks, 1)
    found = list(symmetry.groups(network, wanted))
    assert found[0].order == order
    assert found[-1].order == 1
    for group in found:
        for element in group.elements:
            assert symmetry.is_automorphism(network, wanted, element)
            assert element == group.elements[0] or all(a != b for a, b in enumerate(element))
        assert {tuple(a[i] for i in b) for a in group.elements for b in group.elements} == set(group.elements)
    assert [g.order for g in symmetry.groups(network, demand.builtin("broadcast", network.ranks, 1))] == [1]


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
    return network, wanted, balance.balanced(network, wanted, symmetry.trivial(network))


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
    with pytest.raises(InternalError, match="do not fit"):
        check.check(network, wanted, replace(good, rounds=good.rounds[:1]))


def test_the_checker_of_reductions() -> None:
    network = ring(4)
    wanted = {0: frozenset({0})}
    good = Schedule.of((1, 1), [(0, (0, 2, 1)), (0, (0, 3, 0)), (1, (0, 1, 0))])
    check.check_combining(network, 4, wanted, good)
    for sends, why in (
        ([(0, (0, 2, 1)), (1, (0, 1, 0))], "does not have all contributions"),
        (
            [(0, (0, 2, 1)), (0, (0, 2, 3)), (1, (0, 1, 0)), (1, (0, 3, 0))],
            "adds a contribution to chunk 0 of rank 0 twice",
        ),
    ):
        with pytest.raises(InternalError, match=why):
            check.check_combining(network, 4, wanted, Schedule.of((1, 1), sends))


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


def test_flows_by_maximum_flow() -> None:
    network = Network.of(topologies.load("dgx1"))
    for name, chunks in (("scatter", 48), ("gather", 6)):
        wanted = demand.builtin(name, 8, chunks, 1)
        found = flows.one_sided_schedule(network, wanted, [1] * 7)
        assert found is not None
        check.check(network, wanted, found)
        assert flows.one_sided_schedule(network, wanted, [1] * 6) is None
    assert flows.fewest_single_rounds(network, demand.builtin("gather", 8, 6, 1), 1, 20) == 7


def test_switches(solvers: Solvers) -> None:
    """What leaves and enters a rank is bounded together: a step for each peer, or the logarithm and more rounds."""
    task = Task(session(solvers, switch(4)), "allgather")
    assert task.solve(1, 2, 3).status == FOUND
    assert task.solve(1, 2, 2).status == IMPOSSIBLE
    outcome = Task(session(solvers, switch(4)), "alltoall").solve(4, 1, 3)
    assert outcome.status == FOUND


def test_an_unreachable_rank(solvers: Solvers) -> None:
    network = Network.of_relation("one way", 3, [([(0, 1)], 1), ([(1, 2)], 1)])
    with pytest.raises(UserError, match="cannot get where they must") as found:
        Task(session(solvers, network), "allgather").least_steps()
    assert found.value.code == "GC3-M007"
    assert Task(session(solvers, network), "broadcast").solve(1, 2, 2).status == FOUND
    assert Task(session(solvers, network), "broadcast", 1).solve(1, 2, 2).status == IMPOSSIBLE


def test_one_way_reductions(solvers: Solvers) -> None:
    """A reduction runs against the broadcast it is made of: links of one direction only show it."""
    network = Network.of_relation("one way", 3, [([(0, 1)], 1), ([(1, 2)], 1)])
    outcome = Task(session(solvers, network), "reduce", 2).solve(1, 2, 2)
    assert outcome.result is not None
    assert outcome.result.schedule.steps == (((0, 0, 1),), ((0, 1, 2),))
    assert Task(session(solvers, network), "reduce", 0).solve(1, 2, 2).status == IMPOSSIBLE


def gatherv() -> collectives.Collective:
    """Rank r gives r + 1 chunks to rank 0, in order."""
    owners = [(r, i) for r in range(4) for i in range(r + 1)]
    return collectives.custom("gatherv", inputs=[1, 2, 3, 4], outputs=[10, 0, 0, 0], expect=lambda _r, i: owners[i])


@pytest.mark.parametrize("chunks", [1])
def test_custom_collectives(solvers: Solvers, chunks: int) -> None:
    task = Task(session(solvers, ring(4)), gatherv())
    outcome = task.least_rounds(chunks, task.least_steps())
    assert outcome.result is not None
    assert outcome.result.cost == (1, 2, 5)
    assert outcome.fewest
    program = outcome.result.program()
    assert program.collective.is_custom
    program.verify()
    case = Case(program.collective, 5, "int32")
    inputs, outputs = case.inputs(), case.poisoned_outputs()
    program.run(inputs, outputs=outputs, count=5, dtype="int32")
    assert case.compare(inputs, outputs).ok


def test_mistakes(solvers: Solvers) -> None:
    here = session(solvers, ring(4))
    for call, why in (
        (lambda: Task(here, "allgatherv"), "'allgatherv' is not one of"),
        (lambda: Task(here, "broadcast", 4), "root=4"),
        (lambda: Task(here, "alltoall").solve(3, 2, 2), "must be a multiple of 4"),
        (lambda: Task(here, "allgather").solve(0, 2, 2), "chunks=0"),
        (lambda: Task(here, "allgather").solve(1, 3, 2), "rounds=2"),
        (lambda: Task(session(solvers, ring(3)), gatherv()), "is for 4 ranks"),
        (lambda: demand.custom(collectives.get("allgather")), "is built in"),
        (lambda: Network.of_relation("x", 2, [([(0, 2)], 1)]), "no link"),
        (lambda: Network.of_relation("x", 2, [([(0, 1)], -1)]), "bound"),
    ):
        with pytest.raises(UserError, match=why):
            call()
    adding = collectives.custom("sum", inputs=[1] * 4, outputs=[1, 0, 0, 0], expect=lambda _r, _i: [(0, 0), (1, 0)])
    with pytest.raises(UserError, match="reduces 2 chunks"):
        Task(here, adding).demand(1)


def test_the_cache(solvers: Solvers, tmp_path: Any) -> None:
    cache = synth.Cache(tmp_path / "kept")
    network, wanted, _ = valid()
    first = session(solvers, network, cache=cache).solve(wanted, 2, 4)
    again = session(solvers, network, cache=cache).solve(wanted, 2, 4)
    assert (again.how, again.schedule) == ("the cache", first.schedule)
    (file,) = (tmp_path / "kept").iterdir()
    for damaged in (
        "",
        "{}",
        '{"rounds": [4, 0], "steps": [[], []]}',
        '{"rounds": [2, 2], "steps": [[[0, 0, 2]], []]}',
    ):
        file.write_text(damaged)
        assert session(solvers, network, cache=cache).solve(wanted, 2, 4).how == first.how
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="GC3-I002"):
        synth.Cache(tmp_path / "file" / "below")


def test_the_same_seed_gives_the_same(solvers: Solvers) -> None:
    found = [Task(session(solvers, "dgx1", seed=s), "allgather").solve(6, 3, 7).result for s in (3, 3, 4)]
    first, second, other = (f.schedule for f in found if f is not None)
    assert first == second
    assert first != other


def test_time_is_up(solvers: Solvers) -> None:
    """A hopeless search ends when it must, and the solvers work after it."""
    network = switch(12)
    begun = time.monotonic()
    outcome = Task(session(solvers, network, 0.5), "allgather").solve(1, 4, 11)
    assert outcome.status in (OPEN, FOUND)
    assert time.monotonic() - begun < 5
    assert Task(session(solvers, ring(4)), "alltoall").solve(4, 2, 2).status == FOUND
