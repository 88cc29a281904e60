"""Custom collectives: sums of any ranks, groups that share a machine, uneven blocks, and any order of chunks."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from gc3 import collectives, synth
from gc3.collectives import Collective
from gc3.errors import UserError
from gc3.runtime.checking import Case
from gc3.runtime.program import Program
from gc3.synth import FOUND, IMPOSSIBLE, Network, Outcome, Solvers, Task, problem
from gc3.synth.bounds import combining_bound
from gc3.synth.problem import demand
from small_networks import random_network, ring, session, switch

pytestmark = pytest.mark.python_only

Chunks = list[dict[str, list[int]]]


def read(folder: Path, **content: Any) -> Collective:
    file = folder / "own.json"
    file.write_text(json.dumps(content))
    return problem.read(str(file))


def check(outcome: Outcome, wanted: Collective) -> Program:
    """The program implements the collective that was asked for: proven, and on data."""
    assert outcome.status == FOUND
    assert outcome.result is not None
    program = outcome.result.program()
    assert program.verify().ok
    asked, made = collectives.cut(wanted, outcome.result.chunks).model(), program.collective
    for rank in range(asked.ranks):
        assert made.output_chunks(rank) >= asked.output_chunks(rank)
        for i in range(asked.output_chunks(rank)):
            assert sorted(made.expected_terms(rank, i)) == sorted(asked.expected_terms(rank, i))
    case = Case(made, 3, "int32")
    inputs, outputs = case.inputs(), case.poisoned_outputs()
    program.run(inputs, outputs=outputs, count=3, dtype="int32")
    assert case.compare(inputs, outputs).ok
    return program


def random_chunks(seed: int, ranks: int) -> Chunks:
    chance = random.Random(seed)  # noqa: S311
    found: Chunks = []
    for _ in range(chance.randint(1, 5)):
        before = chance.sample(range(ranks), chance.choice((1, 1, 2, ranks)))
        found.append({"pre": before, "post": chance.sample(range(ranks), chance.randint(1, ranks))})
    return found


@pytest.mark.parametrize("first", [0, 20, pytest.param(40, marks=pytest.mark.nightly)])
def test_random_sums(solvers: Solvers, tmp_path: Path, first: int) -> None:
    for seed in range(first, first + 20):
        network = random_network(seed)
        wanted = read(tmp_path, name=f"sums {seed}", nodes=network.ranks, chunks=random_chunks(seed, network.ranks))
        task = Task(session(solvers, network), wanted)
        bound = task.any_steps().rounds
        fewest = task.least_rounds(1, task.least_steps())
        for outcome in (fewest, task.pipelined(1 + seed % 3)):
            check(outcome, wanted)
            assert outcome.result is not None
            chunks, steps, rounds = outcome.result.cost
            assert rounds >= bound * chunks
            assert steps >= task.any_algorithm_steps()
            assert outcome.composed == task.composed
        assert fewest.result is not None
        assert task.in_steps(task.least_steps()).rounds <= fewest.result.cost[2]


@pytest.mark.parametrize("listed", [(0, 1), (1, 0)])
def test_outputs_have_the_order_of_the_file(solvers: Solvers, tmp_path: Path, listed: tuple[int, int]) -> None:
    wanted = read(tmp_path, name="ordered", nodes=3, chunks=[{"pre": [r], "post": [2]} for r in listed])
    task = Task(session(solvers, ring(3)), wanted)
    program = check(task.least_rounds(1, 1), wanted)
    assert [program.collective.expected_terms(2, i) for i in (0, 1)] == [[(r, 0)] for r in listed]


def crossed() -> Collective:
    """No numbering of the chunks has the order of all buffers; one is needed twice, one place may hold anything."""
    both = [(0, 0), (2, 0)]
    expect = {(0, 0): (1, 1), (0, 1): (1, 0), (0, 3): (1, 1), (1, 0): both, (2, 0): both}
    return collectives.custom("crossed", inputs=[1, 2, 2], outputs=[4, 1, 1], expect=expect)


@pytest.mark.parametrize("chunks", [1, 2])
def test_any_order_of_chunks(solvers: Solvers, chunks: int) -> None:
    task = Task(session(solvers, ring(3)), crossed())
    outcome = task.least_rounds(chunks, task.least_steps())
    check(outcome, crossed())
    assert outcome.result is not None
    with pytest.raises(UserError, match=r"JSON form cannot say; write a \.gc3 file"):
        outcome.result.to_json()


@pytest.mark.parametrize("name", collectives.BUILTIN)
def test_groups_share_a_machine(solvers: Solvers, tmp_path: Path, name: str) -> None:
    """Two groups, of which one has its ranks in another order; each does what the collective does alone."""
    members = ([4, 1, 0], [2, 5, 3])
    groups = [{"collective": name, "ranks": ranks, "chunks": 2} for ranks in members]
    wanted = read(tmp_path, name="groups", nodes=6, groups=groups)
    alone, both = collectives.get(name).model(3, chunks=2), wanted.model()
    for ranks in members:
        for place, rank in enumerate(ranks):
            assert both.input_chunks(rank) == alone.input_chunks(place)
            for i in range(alone.output_chunks(place)):
                assert both.expected_terms(rank, i) == [(ranks[r], k) for r, k in alone.expected_terms(place, i)]
    task = Task(session(solvers, switch(6)), wanted)
    check(task.least_rounds(1, task.least_steps()), wanted)


def test_rooted_groups_and_all_forms_together(solvers: Solvers, tmp_path: Path) -> None:
    groups = [{"collective": "reduce", "ranks": [0, 2, 3], "root": 3}, {"collective": "broadcast", "ranks": [1, 2]}]
    counts = [[0, 2, 0, 0], [0, 0, 0, 3], [1, 0, 1, 0], [0, 0, 0, 0]]
    wanted = read(tmp_path, name="all", nodes=4, chunks=[{"pre": [0, 1], "post": [0]}], groups=groups, counts=counts)
    task = Task(session(solvers, ring(4)), wanted)
    check(task.least_rounds(1, task.least_steps()), wanted)
    check(task.pipelined(3), wanted)


def test_uneven_blocks_are_moved_within_the_bound(solvers: Solvers, tmp_path: Path) -> None:
    """Of an all-to-all with counts, the fullest port is the bound; a padded one would need twice as much."""
    counts = [[0, 4, 1, 1], [1, 0, 4, 1], [1, 1, 0, 4], [4, 1, 1, 0]]
    wanted = read(tmp_path, name="uneven", nodes=4, counts=counts)
    task = Task(session(solvers, switch(4)), wanted)
    outcome = task.least_rounds(1, 1)
    check(outcome, wanted)
    assert outcome.result is not None
    assert outcome.result.cost == (1, 1, 6)
    assert task.any_steps().rounds == 6


@pytest.mark.parametrize("chunks", [1, 3])
def test_nothing_to_move(solvers: Solvers, tmp_path: Path, chunks: int) -> None:
    """All ranks without data: a layer to whose experts nobody sends."""
    wanted = read(tmp_path, name="idle", nodes=3, counts=[[0] * 3] * 3)
    check(Task(session(solvers, ring(3)), wanted).pipelined(chunks), wanted)


def test_bounds_of_sums() -> None:
    line = Network.of_relation("line", 3, [([(0, 1)], 1), ([(1, 2)], 1), ([(2, 1)], 1), ([(1, 0)], 1)])
    both = demand.Item(frozenset({0, 2}), frozenset({0, 2}))
    assert combining_bound(line, [both] * 4).rounds == 4
    assert combining_bound(line, [demand.Item(frozenset({1}), frozenset({1}))]).rounds == 0
    one_way = Network.of_relation("one way", 3, [([(0, 1)], 1), ([(1, 2)], 1)])
    assert "nothing can leave rank" in combining_bound(one_way, [both]).proof


def test_what_no_composition_reaches_is_not_called_impossible(solvers: Solvers, tmp_path: Path) -> None:
    wanted = read(tmp_path, name="sum", nodes=4, groups=[{"collective": "allreduce", "ranks": [0, 1, 2, 3]}])
    task = Task(session(solvers, ring(4)), wanted)
    check(task.solve(2, 4, 4), wanted)
    composed = task.solve(4, 4, 4)
    assert (composed.status, composed.composed) == (IMPOSSIBLE, True)
    assert "no reduction and distribution fit" in composed.how
    proven = task.solve(6, 4, 4)
    assert (proven.status, proven.composed) == (IMPOSSIBLE, False)
    assert proven.how == "6 messages must go between 4 ranks"


def sums(**expect: Any) -> Collective:
    places = {(int(key[1]), int(key[3])): value for key, value in expect.items()}
    return collectives.custom("sums", inputs=[2] * 3, outputs=[2] * 3, expect=places)


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        (sums(r0i0=[(1, 0), (1, 1)]), "output chunk 0 of rank 0 reduces several chunks of rank 1"),
        (sums(r0i0=[(1, 0), (2, 1)], r1i1=(1, 0)), "needs chunk 0 of rank 1, which is in another sum, too"),
        (
            collectives.custom("open", inputs=[1, 1], outputs=[1, 1], expect="whatever it makes"),
            "does not say what its outputs must hold",
        ),
    ],
)
def test_what_cannot_be_synthesized(wanted: Collective, why: str) -> None:
    with pytest.raises(UserError, match=why):
        demand.custom_problem(wanted)


GROUP = {"collective": "reduce", "ranks": [0, 1]}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ({}, "none of 'chunks', 'groups' and 'counts'"),
        ({"groups": []}, "groups is not a list of groups"),
        ({"groups": [{**GROUP, "collective": "sum"}]}, r"groups\[0\].collective is 'sum', not one of allreduce"),
        ({"groups": [{**GROUP, "ranks": [0, 0]}]}, r"groups\[0\].ranks has a rank twice"),
        ({"groups": [{**GROUP, "ranks": []}]}, r"groups\[0\].ranks is empty"),
        ({"groups": [{**GROUP, "ranks": [3]}]}, r"groups\[0\].ranks is not ranks from 0 to 1"),
        ({"groups": [{"collective": "reduce"}]}, r"groups\[0\] has no list 'ranks'"),
        ({"groups": [{**GROUP, "chunks": 0}]}, r"groups\[0\].chunks is 0"),
        ({"groups": [{**GROUP, "chunks": 1 << 20}]}, "more than 1048576 chunks"),
        ({"groups": [{**GROUP, "root": 2}]}, r"groups\[0\].root, 2, is none of its ranks"),
        ({"groups": [{**GROUP, "collective": "allreduce", "root": 1}]}, "is for no allreduce, which has none"),
        ({"groups": ["all"]}, r"groups\[0\].collective is None"),
        ({"counts": [[0, 1]]}, "counts has 1 rows for 2 ranks"),
        ({"counts": [[0, 1], [1]]}, r"counts\[1\] is not a row of 2 numbers"),
        ({"counts": [[0, 1], [1, -1]]}, r"counts\[1\] is not a row of 2 numbers"),
        ({"counts": [[0, 1], [1 << 20, 0]]}, "more than 1048576 chunks"),
    ],
)
def test_invalid_files(tmp_path: Path, content: dict[str, Any], why: str) -> None:
    with pytest.raises(UserError, match=why) as found:
        read(tmp_path, nodes=2, **content)
    assert found.value.code == "GC3-M001"


def test_the_names(solvers: Solvers) -> None:
    assert demand.custom_name("allreduce") == "custom-allreduce"
    assert synth.Task(session(solvers, ring(3)), "allreduce").problem(3).layout is None
