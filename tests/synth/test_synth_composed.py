"""Synthesis beyond one search: symmetric chunks around a root, splits of rounds, composed parts, separate channels."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import numpy as np
import pytest
from click.testing import CliRunner, Result

from gc3 import collectives, topologies
from gc3.cli.main import main
from gc3.errors import UserError
from gc3.synth import FOUND, IMPOSSIBLE, OPEN, Demand, Network, Outcome, Solvers, Task
from gc3.synth.methods import flow_over_time, flow_rounding, satisfiability
from gc3.synth.problem import check, demand, symmetry
from gc3.synth.problem.demand import Piece
from small_networks import random_network, ring, session, switch

pytestmark = pytest.mark.python_only


def gc3(line: str) -> Result:
    return CliRunner().invoke(main, line.split())


def test_chunks_turn_around_the_root(solvers: Solvers) -> None:
    network = Network.of(topologies.load("torus:X=4,Y=4"))
    wanted = demand.builtin("broadcast", 16, 8)
    groups = list(symmetry.turnings(network, wanted))
    assert {8, 4, 2} <= {g.order for g in groups}
    for group in groups:
        assert all(p[0] == 0 and symmetry.is_automorphism(network, wanted, p) for p in group.elements)
        images = [[group.chunk_image(wanted, c, h) for h in range(group.order)] for c in group.chosen(wanted)]
        assert sorted(c for orbit in images for c in orbit) == list(range(8))  # each chunk once
    status, found = satisfiability.decide(solvers, network, wanted, [2, 1, 1, 3], groups[0], 20.0)
    assert status in ("sat", "unsat")
    if found is not None:
        check.check(network, wanted, found)
    outcome = Task(session(solvers, network), "broadcast").solve(8, 4, 7)
    assert outcome.status == FOUND
    assert outcome.result is not None
    assert outcome.result.cost == (8, 4, 7)


def test_only_one_piece_to_all_turns() -> None:
    network = ring(4)
    assert not list(symmetry.turnings(network, demand.builtin("allgather", 4, 4)))
    assert not list(symmetry.turnings(network, Demand("part", 4, 1, 0, (Piece(0, frozenset({1, 2}), 2),))))
    assert [g.order for g in symmetry.turnings(network, demand.builtin("broadcast", 4, 2))] == [2]
    assert not list(symmetry.turnings(network, demand.builtin("broadcast", 4, 3)))


@pytest.mark.parametrize("seed", range(6))
def test_order_among_chunks_changes_no_answer(solvers: Solvers, seed: int) -> None:
    network = random_network(seed)
    nothing = symmetry.trivial(network)
    for name, chunks in (("broadcast", 3), ("allgather", 2)):
        wanted = demand.builtin(name, network.ranks, chunks)
        for rounds in ([1, 1], [1, 2], [2, 2], [1, 1, 2]):
            free, _ = satisfiability.decide(solvers, network, wanted, rounds, nothing, 20.0)
            ordered, found = satisfiability.decide(solvers, network, wanted, rounds, nothing, 20.0, ordered=True)
            assert ordered == free
            if found is not None:
                check.check(network, wanted, found)


def test_every_split_is_refuted(solvers: Solvers) -> None:
    """Between (8, 4, 7) and the bound of its linear program, 2/3, 8 rounds allow nothing: 10/8 is impossible."""
    outcome = Task(session(solvers, "torus:X=4,Y=4"), "broadcast").solve(9, 4, 7)
    assert outcome.status == IMPOSSIBLE
    assert "split" in outcome.how or "at least" in outcome.how or "branch and bound" in outcome.how


def test_large_flows_in_two_steps(solvers: Solvers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow_over_time, "MANY", 0)
    outcome = Task(session(solvers, "torus:X=4,Y=4"), "alltoall").solve(16, 4, 8)
    assert outcome.status == FOUND
    assert outcome.fewest is not None


def test_flows_without_symmetry_are_rounded(solvers: Solvers, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a ring with chords no symmetry moves every rank; the rounds are as few as an integer program says."""
    pairs = {(r, (r + d) % 9) for r in range(9) for d in (1, -1)} | {(0, 4), (4, 0), (2, 7), (7, 2), (1, 5), (5, 1)}
    network = Network.of_relation("chords", 9, [([p], 1) for p in sorted(pairs)])
    wanted = Task(session(solvers, network), "alltoall").parts(9)[0][1]
    assert session(solvers, network).group(wanted).order == 1
    exact = Task(session(solvers, network), "alltoall").least_rounds(9, 3)
    assert exact.result is not None
    rounds = exact.result.cost[2]
    monkeypatch.setattr(flow_over_time, "MANY", 10)
    for more in (0, 1):
        answer = session(solvers, network).solve(wanted, 3, rounds + more)
        assert answer.status == FOUND
        assert more == 0 or answer.how == "a fractional flow, rounded"
    assert session(solvers, network).solve(wanted, 3, rounds - 1).status == IMPOSSIBLE


def test_detours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 0 sends two chunks to rank 2 of a ring of four over rank 1; if rank 3 is in use, its user moves away."""
    pairs = [(r, (r + d) % 4) for r in range(4) for d in (1, -1)]
    network = Network.of_relation("ring", 4, [([p], 1) for p in pairs])
    edge = network.edge_index
    limit = {(e, s): 1 for e in range(len(network.edges)) for s in range(3)}
    price = np.ones((len(network.edges), 3))
    both = {(edge[0, 1], 0): 2, (edge[1, 2], 1): 2, (-1 - 2, 2): 2}
    other = {(edge[3, 2], 1): 1, (-1 - 3, 0): 1, (-1 - 2, 2): 1}
    chance = random.Random(0)  # noqa: S311 - nothing secret
    found = flow_rounding.Detours(network, limit, price, {0: both, 3: other}).run(math.inf, chance, lambda _: None)
    assert found is not None
    for place in limit:
        assert 0 <= sum(amounts.get(place, 0) for amounts in found.values()) <= 1
    for source, count in ((0, 2), (3, 1)):
        at = {source: count}
        for s in range(3):
            after: dict[int, int] = {}
            for (e, step), amount in found[source].items():
                if step == s and amount:
                    src, dst = network.edges[e] if e >= 0 else (-1 - e, -1 - e)
                    at[src] -= amount
                    after[dst] = after.get(dst, 0) + amount
            assert not any(at.values())  # all data is sent on, or waits
            at = after
        assert at == {2: count}
    monkeypatch.setattr(flow_rounding, "_PATIENCE", 20)
    three = {(edge[0, 1], 0): 3, (edge[1, 2], 1): 3, (-1 - 2, 2): 3}
    narrow = {**limit, (edge[0, 3], 0): 0, (edge[0, 3], 1): 0}
    assert flow_rounding.Detours(network, narrow, price, {0: three}).run(math.inf, chance, lambda _: None) is None


@pytest.mark.parametrize("name", [n for n in demand.NAMES if n != "alltonext"])
def test_composed_of_nodes_and_rails(solvers: Solvers, name: str) -> None:
    network = Network.of(topologies.load("ndv4:N=2"), 25e9)
    task = Task(session(solvers, network), name)
    outcome = task.hierarchical(task.unit)
    assert outcome.result is not None
    assert "between nodes" in outcome.how
    assert outcome.result.program().verify().ok
    assert Fraction(outcome.result.cost[2], task.unit) >= task.any_steps().rounds


@pytest.mark.parametrize("nodes", [2, 4])
def test_composing_by_itself_where_time_is_up(nodes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The composed result is proven, and run."""
    nothing = Outcome(OPEN, None, "the time limit was reached", None, 0.0)
    monkeypatch.setattr(Task, "least_rounds", lambda *_: nothing)  # pyright: ignore[reportUnknownArgumentType, reportUnknownLambdaType]
    line = f"synth reducescatter -t ndv4:N={nodes} --unit 25 --steps least --time-limit 100 --run"
    result = gc3(line)
    assert result.exit_code == 0, result.output
    assert "composed: " in result.output
    assert "all equal to NumPy's" in result.output


def test_composed_over_few_rails(solvers: Solvers) -> None:
    """Only rank 0 of each ring of four reaches the other ring: data gathers there, crosses, and is distributed."""
    pairs = [(n + r, n + (r + d) % 4) for n in (0, 4) for r in range(4) for d in (1, -1)]
    network = Network.of_relation("two rings", 8, [([p], 2) for p in pairs] + [([p], 1) for p in ((0, 4), (4, 0))],
                                  [0] * 4 + [1] * 4)  # fmt: skip
    outcome = Task(session(solvers, network), "allgather").hierarchical(1)
    assert outcome.result is not None
    assert "to the rails" in outcome.how
    crossing = [s for step in outcome.result.schedule.steps for s in step if s[1] // 4 != s[2] // 4]
    assert len(crossing) == 8  # every chunk once
    assert outcome.result.program().verify().ok


@pytest.mark.parametrize("name", ["allgather", "allreduce", "alltoall", "broadcast"])
def test_nodes_of_different_sizes(solvers: Solvers, name: str) -> None:
    """A node that has lost two GPUs: two of those left take part in two rails each."""
    network = Network.of(topologies.load("ndv4:N=2,without=3+5"), 25e9)
    assert [network.nodes.count(n) for n in sorted(set(network.nodes))] == [6, 8]
    task = Task(session(solvers, network), name)
    outcome = task.hierarchical(4 * task.unit)
    better = task.hierarchical(4 * task.unit, overlapped=True)
    assert outcome.result is not None
    assert better.result is not None
    assert better.result.schedule.total_rounds <= outcome.result.schedule.total_rounds
    assert better.result.program().verify().ok
    assert Fraction(better.result.cost[2], 4 * task.unit) >= task.any_steps().rounds


@pytest.mark.parametrize(
    ("name", "chunks", "above"),
    [
        ("alltoall", 64, 0.0),
        pytest.param("allgather", 16, 0.01, marks=pytest.mark.nightly),
        pytest.param("allreduce", 512, 0.06, marks=pytest.mark.nightly),
    ],
)
def test_phases_overlap(solvers: Solvers, name: str, chunks: int, above: float) -> None:
    """One after the other, the phases take 9 to 59 % more rounds than the bound."""
    task = Task(session(solvers, Network.of(topologies.load("ndv4:N=8"), 25e9)), name)
    bound = task.any_steps().rounds * chunks
    apart, together = task.hierarchical(chunks), task.hierarchical(chunks, overlapped=True)
    assert apart.result is not None
    assert together.result is not None
    assert "overlapped" in together.how
    assert apart.result.schedule.total_rounds > 1.08 * bound
    assert together.result.schedule.total_rounds <= (1 + above) * bound


def test_overlapping_on_the_command_line() -> None:
    result = gc3("synth allreduce -t ndv2:N=2 --hierarchical --pipelined -C 64 --run")
    assert result.exit_code == 0, result.output
    assert "composed, overlapped: " in result.output
    assert "all equal to NumPy's" in result.output


def test_what_has_no_rails(solvers: Solvers) -> None:
    with pytest.raises(UserError, match="not made of several nodes"):
        Task(session(solvers, switch(4)), "allgather").hierarchical(1)
    lopsided = Network.of_relation("l", 4, [([p], 1) for p in ((0, 1), (1, 0), (2, 3), (3, 2), (1, 2), (2, 1))],
                                   [0, 0, 1, 1])  # fmt: skip
    with pytest.raises(UserError, match="no rails"):
        Task(session(solvers, lopsided), "allgather").hierarchical(1)


@pytest.mark.parametrize(("name", "lanes"), [("allgather", {0, 1}), ("allreduce", set(range(16)))])
def test_pipelined_transfers_keep_apart(solvers: Solvers, name: str, lanes: set[int]) -> None:
    network = Network.of(topologies.load("ndv4:N=2"), 25e9)
    task = Task(session(solvers, network), name)
    outcome = task.pipelined(8 * task.unit)
    assert outcome.result is not None
    program = outcome.result.program()
    assert program.verify().ok
    sends = program.core.sends()
    assert {channel for _, _, _, channel, _ in sends} <= lanes
    assert all((channel % 2 == 0) == (src // 8 != dst // 8) for src, _, dst, channel, _ in sends)


@pytest.mark.parametrize("name", ["reduce", "allgather", "allreduce"])
def test_a_custom_collective_with_a_known_name(solvers: Solvers, name: str) -> None:
    """It implements what its data say, under any name."""
    swap = collectives.custom(name, inputs=[1, 1, 0], outputs=[1, 1, 0], expect={(0, 0): (1, 0), (1, 0): (0, 0)})
    outcome = Task(session(solvers, ring(3)), swap).least_rounds(1, 1)
    assert outcome.result is not None
    assert outcome.result.cost == (1, 1, 1)
    assert outcome.result.program().verify().ok


def test_hierarchical_at_the_command_line() -> None:
    result = gc3("synth allreduce -t ndv4:N=2 --unit 25 --hierarchical --run")
    assert result.exit_code == 0, result.output
    assert "composed: between nodes" in result.output
    assert "above the bound: any takes at least" in result.output
    assert "all equal to NumPy's" in result.output
    result = gc3("synth allreduce -t dgx1 --hierarchical")
    assert result.exit_code == 1
    assert "several nodes" in result.output
    assert gc3("synth allreduce -t dgx1 --hierarchical --steps least").exit_code == 2
