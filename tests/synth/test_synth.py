"""Synthesis: the same answers as a plain SMT encoding, the paper's tables, bounds and their proofs."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import plain_encoding
import pytest

from gc3 import algorithms, collectives, lang, sim, synth, topologies
from gc3.errors import UserError
from gc3.runtime.checking import Case
from gc3.synth import FOUND, IMPOSSIBLE, OPEN, Network, Solvers, Task
from gc3.synth.bounds import cuts
from gc3.synth.problem import check, demand
from ranks import LOAD
from small_networks import random_network, ring, session, switch

pytestmark = pytest.mark.python_only

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


@pytest.mark.parametrize(("spec", "row"), TABLES, ids=lambda v: v if isinstance(v, str) else "-".join(map(str, v)))
def test_tables(solvers: Solvers, spec: str, row: Row) -> None:
    """Every row is found, with those numbers; every other one is also run."""
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


@pytest.mark.parametrize(("spec", "row"), TABLES, ids=lambda v: v if isinstance(v, str) else "-".join(map(str, v)))
def test_programs_of_the_tables_have_the_costs_in_the_tables(solvers: Solvers, spec: str, row: Row) -> None:
    """A synthesized program, simulated in the steps of its schedule, takes exactly S alpha + R/C L beta."""
    name, chunks, steps, rounds = row
    rooted = name in ("broadcast", "reduce", "gather", "scatter")
    outcome = Task(session(solvers, spec), name, root=1 if rooted else 0).solve(chunks, steps, rounds)
    assert outcome.result is not None
    program = lang.compile(outcome.result.algorithm(step_channels=True))
    assert program.verify().ok
    on = sim.platform(spec, "ideal")
    found = sim.Simulation(program, on).alpha_beta(step_channels=True)
    if row == ("broadcast", 6, 3, 5):
        rounds = 3  # dominated by (6, 3, 3): two of its rounds go unused
    assert (found.steps, found.rounds) == (steps, rounds)
    alpha = on.topology.classes[0].latency_s or 0.0
    beta = 1 / min(
        c.bandwidth_bytes_per_s or 0.0 for c in on.topology.classes if c.name in ("nvlink2", "xgmi", "pcie4")
    )
    chunk = 1 << 20
    assert found.time_s(found.chunks * chunk) == pytest.approx(steps * alpha + rounds * chunk * beta, rel=1e-12)


def test_steps_that_a_program_cannot_keep() -> None:
    ring = lang.compile(algorithms.load("ring_allgather"), R=4)
    with pytest.raises(UserError, match="cannot proceed in the steps"):
        sim.Simulation(ring, sim.platform("ring:R=4")).alpha_beta(step_channels=True)


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
    assert outcome.seconds < 2 + LOAD


@pytest.mark.parametrize("seed", range(12))
def test_as_the_plain_encoding(solvers: Solvers, seed: int) -> None:
    """Small random networks, including shared buses: the same answer as z3 for section 3.4."""
    network = random_network(seed)
    chance = random.Random(seed + 1000)  # noqa: S311
    here = session(solvers, network)
    for name in chance.sample(("allgather", "broadcast", "alltoall", "gather", "scatter"), 3):
        task = Task(here, name, chance.randrange(network.ranks) if name in ("broadcast", "gather", "scatter") else 0)
        least = task.least_steps()
        for chunks in {task.unit, 2 if task.unit == 1 and name != "gather" else task.unit}:
            steps = least + chance.randrange(2)
            rounds = max(steps, int(task.any_steps().rounds * chunks)) + chance.randrange(2)
            wanted = task.parts(chunks)[0][1]
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
    """(2, 2, 2) has a common factor of C and R and dominates (3, 2, 4); the frontier continues past table 4."""
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
    # With two nodes and one NIC for two GPUs, the crossing data decides; maximum flow finds the cut among 2^16.
    boxes = Network.of(topologies.load("dgx1:N=2"))
    crossing = cuts.cut_bound(boxes, demand.builtin("allgather", 16, 1))
    assert (crossing.rounds, crossing.proof) == (2, "what must reach ranks 0, 1, 2, 3, 4, 5, 6, 7")
    assert cuts.distance_bound(torus, demand.builtin("alltoall", 16, 16)).rounds == 8


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


def test_switches(solvers: Solvers) -> None:
    """The data into and out of a rank is bounded together: a step for each peer, or the logarithm and more rounds."""
    task = Task(session(solvers, switch(4)), "allgather")
    assert task.solve(1, 2, 3).status == FOUND
    assert task.solve(1, 2, 2).status == IMPOSSIBLE
    outcome = Task(session(solvers, switch(4)), "alltoall").solve(4, 1, 3)
    assert outcome.status == FOUND


def test_an_unreachable_rank(solvers: Solvers) -> None:
    network = Network.of_relation("one way", 3, [([(0, 1)], 1), ([(1, 2)], 1)])
    with pytest.raises(UserError, match="cannot reach its targets") as found:
        Task(session(solvers, network), "allgather").least_steps()
    assert found.value.code == "GC3-M007"
    assert Task(session(solvers, network), "broadcast").solve(1, 2, 2).status == FOUND
    assert Task(session(solvers, network), "broadcast", 1).solve(1, 2, 2).status == IMPOSSIBLE


def test_one_rank(solvers: Solvers) -> None:
    alone = Network.of_relation("alone", 1, [])
    for name in ("allgather", "alltoall", "broadcast", "gather", "reduce", "allreduce"):
        task = Task(session(solvers, alone), name)
        assert task.any_steps().rounds == 0
        outcome = task.least_rounds(1, task.least_steps())
        assert outcome.result is not None
        assert outcome.result.program().verify().ok
        assert not any(outcome.result.schedule.steps)


def test_one_way_reductions(solvers: Solvers) -> None:
    """A reduction runs against the broadcast it is built from; only links of one direction show this."""
    network = Network.of_relation("one way", 3, [([(0, 1)], 1), ([(1, 2)], 1)])
    outcome = Task(session(solvers, network), "reduce", 2).solve(1, 2, 2)
    assert outcome.result is not None
    assert outcome.result.schedule.steps == (((0, 0, 1),), ((0, 1, 2),))
    assert Task(session(solvers, network), "reduce", 0).solve(1, 2, 2).status == IMPOSSIBLE


def gatherv() -> collectives.Collective:
    """Rank r sends r + 1 chunks to rank 0, in order."""
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
        (lambda: demand.custom_problem(collectives.get("allgather")), "is built in"),
        (lambda: Network.of_relation("x", 2, [([(0, 2)], 1)]), "no link"),
        (lambda: Network.of_relation("x", 2, [([(0, 1)], -1)]), "bound"),
    ):
        with pytest.raises(UserError, match=why):
            call()


def test_the_cache(solvers: Solvers, tmp_path: Any) -> None:
    cache = synth.Cache(tmp_path / "kept")
    network, wanted = ring(4), demand.builtin("allgather", 4, 2)
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


def full_mesh(ranks: int, capacity: Callable[[int, int], Fraction | int]) -> Network:
    pairs = [(a, b) for a in range(ranks) for b in range(ranks) if a != b]
    return Network.of_relation("mesh", ranks, [([pair], capacity(*pair)) for pair in pairs])


def test_an_all_reduce_where_the_way_back_is_another(solvers: Solvers) -> None:
    """Reducing and gathering have separate bounds, and neither composition bounds an all-reduce."""
    network = full_mesh(4, lambda _, dst: 1 if dst == 0 else 3)
    task = Task(session(solvers, network), "allreduce")
    assert task.any_steps() == cuts.Bound(Fraction(1, 3), "what must leave ranks 1, 2, 3")
    assert task.any_steps_searched().rounds == (1 + Fraction(3, 7)) / 4
    outcome = task.pipelined(64)
    assert outcome.result is not None
    chunks, _, rounds = outcome.result.cost
    assert Fraction(rounds, chunks) >= Fraction(1, 3)


@pytest.mark.parametrize("spec", ["star:R=8", "line:R=8"])
def test_an_all_reduce_through_the_middle(solvers: Solvers, spec: str) -> None:
    """The lower bound of a reduce-scatter and an all-gather is not one of an all-reduce."""
    task = Task(session(solvers, spec), "allreduce")
    assert task.any_steps().rounds == 1
    assert task.any_steps_searched().rounds == Fraction(7, 4)
    points = list(task.frontier(0, 2))
    assert not any(p.bandwidth or p.latency for p in points)


def test_all_reduces_that_nothing_beats(solvers: Solvers) -> None:
    for spec, ratio in (("dgx1", Fraction(7, 24)), ("ring:R=8", Fraction(7, 8)), ("hypercube:D=3", Fraction(7, 12))):
        task = Task(session(solvers, spec), "allreduce")
        assert task.any_steps().rounds == task.any_steps_searched().rounds == ratio


def test_bandwidths_that_no_unit_divides(solvers: Solvers) -> None:
    """A step of r rounds carries r times the bandwidth, rounded down, and the proofs respect that."""
    network = full_mesh(4, lambda src, dst: 1 if (src, dst) == (0, 1) else Fraction(19, 10))
    task = Task(session(solvers, network), "allgather")
    assert task.any_steps().rounds == Fraction(3) / Fraction(48, 10)
    assert task.solve(19, 1, 19).status == FOUND
    assert task.solve(16, 2, 9).status == IMPOSSIBLE
    assert task.pipelined(64).result is not None
    network = full_mesh(4, lambda src, dst: 1 if (src, dst) == (0, 1) else Fraction(3, 2))
    task = Task(session(solvers, network), "allgather")
    assert task.solve(3, 1, 2).status == IMPOSSIBLE
    # Three rounds would be enough if they were not 1 and 2: 3 + 8 chunks reach rank 1, which needs 12.
    assert task.any_steps().rounds == Fraction(3, 4)
    assert task.solve(4, 2, 3).status == IMPOSSIBLE
    assert task.solve(5, 2, 4).status == FOUND


def test_all_to_all_over_a_narrow_place(solvers: Solvers) -> None:
    """With too many ranks to try every cut, prices prove what all ranks together need."""
    network = Network.of(topologies.load("hierarchical:N=2,G=6,nics=1"))
    task = Task(session(solvers, network), "alltoall")
    assert task.any_steps().rounds == 3
    network = Network.of(topologies.load("line:R=12"))
    assert Task(session(solvers, network), "alltoall").any_steps().rounds == 3
    task = Task(session(solvers, "hierarchical:N=2,G=6,nics=1"), "alltoall")
    found = task.least_rounds(12, 1)
    assert found.result is not None
    assert found.result.cost == (12, 1, 36)
    assert found.fewest is not None


def test_time_is_up(solvers: Solvers) -> None:
    """A hopeless search ends at its limit, and the solvers work after it."""
    network = switch(12)
    begun = time.monotonic()
    outcome = Task(session(solvers, network, 0.5), "allgather").solve(1, 4, 11)
    assert outcome.status in (OPEN, FOUND)
    assert time.monotonic() - begun < 0.5 + LOAD
    assert Task(session(solvers, ring(4)), "alltoall").solve(4, 2, 2).status == FOUND


def test_pipelined_trees(solvers: Solvers) -> None:
    """On two boxes of GPUs with rails, the rounds are the bound plus the depth of the trees, and they are invariant."""
    task = Task(session(solvers, "hierarchical:N=2,G=8,nics=8"), "allgather")
    outcome = task.pipelined(26)
    assert outcome.result is not None
    assert task.any_steps().rounds == Fraction(15, 13)
    assert 30 <= outcome.result.cost[2] <= 32
