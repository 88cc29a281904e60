"""The bound on the rounds of a broadcast with a number of chunks."""

from __future__ import annotations

import itertools
import random

import pytest

from gc3 import topologies
from gc3.synth import Network, Session, Solvers, Task, bounds
from gc3.synth.problem import demand

pytestmark = pytest.mark.python_only


def bound_of(network: Network, chunks: int, root: int = 0) -> int:
    return int(bounds.broadcast_bound(network, demand.builtin("broadcast", network.ranks, chunks, root)).rounds)


def ports(ranks: int, chunks: int = 1) -> Network:
    """Ranks on a switch, each with a port in both directions."""
    every = range(ranks)
    relation = [([(r, s) for s in every if s != r], chunks) for r in every]
    relation += [([(s, r) for s in every if s != r], chunks) for r in every]
    return Network.of_relation("ports", ranks, relation)


@pytest.mark.parametrize("ranks", [2, 3, 4, 7, 8, 9, 16])
@pytest.mark.parametrize("chunks", [1, 2, 5, 100])
def test_one_port(ranks: int, chunks: int) -> None:
    """The known optimum with one port each: C - 1 + log2(ranks), rounded up."""
    assert bound_of(ports(ranks), chunks) == chunks - 1 + (ranks - 1).bit_length()


def test_the_way_to_the_last_rank_counts() -> None:
    line = Network.of(topologies.load("line:R=8"))
    assert bound_of(line, 100) == 106
    assert bound_of(line, 100, root=4) == 103


def fewest(network: Network, chunks: int) -> int:
    """The fewest rounds by trying all states, with one chunk at most on each edge in a round."""
    everything = tuple([frozenset(range(chunks))] * network.ranks)
    states = {(frozenset(range(chunks)), *([frozenset[int]()] * (network.ranks - 1)))}
    for rounds in itertools.count():
        if everything in states:
            return rounds
        following = set[tuple[frozenset[int], ...]]()
        for state in states:
            choices = [[None, *sorted(state[src] - state[dst])] for src, dst in network.edges]
            for chosen in itertools.product(*choices):
                held = list(state)
                for (_, dst), chunk in zip(network.edges, chosen, strict=True):
                    if chunk is not None:
                        held[dst] |= {chunk}
                following.add(tuple(held))
        states = {
            s
            for s in following
            if not any(o != s and all(a <= b for a, b in zip(s, o, strict=True)) for o in following)
        }
    raise AssertionError


def test_never_above_the_fewest_rounds_of_all_schedules() -> None:
    chance = random.Random(3)  # noqa: S311 - the same every time
    reached = 0
    for _ in range(25):
        ranks = chance.choice([3, 4])
        pairs = [(r, (r + 1) % ranks) for r in range(ranks)]
        pairs += [p for p in itertools.permutations(range(ranks), 2) if p not in pairs and chance.random() < 0.25]
        network = Network.of_relation("random", ranks, [([p], 1) for p in pairs])
        chunks = chance.choice([1, 2, 3])
        best = fewest(network, chunks)
        assert bound_of(network, chunks) <= best
        reached += bound_of(network, chunks) == best
    assert reached >= 20


@pytest.mark.parametrize("name", ["broadcast", "reduce"])
def test_a_schedule_that_reaches_the_bound_has_the_fewest_rounds(name: str) -> None:
    network = Network.of(topologies.load("ndv4"))
    with Solvers() as solvers:
        task = Task(Session(network, solvers), name)
        made = task.pipelined(256).result
        assert made is not None
        assert made.cost[2] == task.of_chunks(256).rounds == 23
        assert ("leave" if name == "reduce" else "reach") in task.of_chunks(256).proof


def test_other_collectives_have_the_bound_for_any_number_of_chunks() -> None:
    with Solvers() as solvers:
        session = Session(Network.of(topologies.load("dgx1")), solvers)
        assert Task(session, "allgather").of_chunks(5).rounds == 6
        assert Task(session, "allreduce").of_chunks(40).rounds == 12
