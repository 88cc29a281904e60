"""The search itself: which candidates are still worth trying, what proves the fewest rounds, what is cached."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from gc3.synth import FOUND, IMPOSSIBLE, OPEN, Network, Solvers, Task
from gc3.synth.problem import demand
from gc3.synth.problem.check import check
from gc3.synth.result import Candidates, Outcome
from gc3.synth.session import Instance, Method, methods
from small_networks import random_network, ring, session, switch

pytestmark = pytest.mark.python_only

RING = ring(4)
CHORD = Network.of_relation("chord", 5, [([p], 1) for p in sorted({*ring(5).edges, (0, 2)})])  # without symmetry
MULTICASTS = replace(switch(3), sent_once=frozenset(range(3)), in_switch=True)
# For every method an instance (network, collective, C, S, R) that it decides, and what it says.
DECIDES = {
    "MulticastTrees": (MULTICASTS, "broadcast", 2, 2, 2, FOUND, "trees that switches multicast"),
    "GreedyChoices": (RING, "allgather", 1, 2, 2, FOUND, "greedy choices"),
    "MaximumFlow": (RING, "gather", 1, 2, 2, FOUND, "maximum flow over time"),
    "Balance": (RING, "allgather", 1, 2, 2, FOUND, "breadth-first balance"),
    "RoundedFlow": (CHORD, "alltoall", 5, 3, 5, FOUND, "a fractional flow, rounded"),
    "SmallRelaxation": (RING, "broadcast", 4, 2, 3, IMPOSSIBLE, "4 rounds"),
    "GuessedSplits": (RING, "allgather", 2, 2, 3, FOUND, "greedy choices"),
    "WholeFlow": (RING, "alltoall", 4, 2, 2, FOUND, "flow over 2 steps"),
    "LargeRelaxation": (RING, "broadcast", 4, 2, 3, IMPOSSIBLE, "4 rounds"),
    "Repetition": (RING, "allgather", 2, 2, 4, FOUND, "2 times"),
    "BestSplit": (RING, "allgather", 2, 2, 3, FOUND, "greedy choices"),
    "EverySplit": (RING, "broadcast", 4, 2, 3, IMPOSSIBLE, "no split of 3 rounds does"),
    "Satisfiability": (RING, "broadcast", 4, 2, 3, IMPOSSIBLE, "the formula has no model"),
}


def outcome(status: str) -> Outcome:
    return Outcome(status, None, "", None, 0.0)


def test_what_is_impossible_refutes_more_chunks_and_fewer_rounds_alone() -> None:
    """(R, C): if three chunks need more than four rounds, so do four, and three need more than three; two may not."""
    candidates = [(rounds, chunks) for rounds in range(2, 7) for chunks in range(1, 6)]
    tried = Candidates(candidates)
    tried.note((4, 3), outcome(IMPOSSIBLE))
    assert {c for c in candidates if not tried.matters(c)} == {(r, c) for r in (2, 3, 4) for c in (3, 4, 5)}
    tried.note((5, 5), outcome(IMPOSSIBLE))
    assert {c for c in candidates if not tried.matters(c)} == {(r, c) for r in (2, 3, 4) for c in (3, 4, 5)} | {(5, 5)}


def test_what_is_open_stays_so_until_it_is_decided_or_refuted() -> None:
    tried = Candidates([(3, 3), (3, 2), (2, 1), (4, 1)])
    for candidate in ((3, 3), (3, 2), (2, 1)):
        tried.note(candidate, outcome(OPEN))
    assert tried.undecided == [(3, 3), (3, 2), (2, 1)]
    tried.note((3, 2), outcome(IMPOSSIBLE))
    assert tried.undecided == [(2, 1)]  # three chunks in as many rounds are refuted along with two
    tried.note((2, 1), outcome(IMPOSSIBLE))
    assert tried.undecided == []
    assert tried.matters((4, 1))


def test_fewer_rounds_are_refuted_by_branch_and_bound_where_no_bound_does(solvers: Solvers) -> None:
    here = session(solvers, random_network(9))
    task = Task(here, "allgather")
    wanted = task.parts(3)[0][1]
    assert max(math.ceil(here.in_steps(wanted, 2).rounds), math.ceil(here.any_steps(wanted).rounds)) == 3
    found = task.solve(3, 2, 4)
    assert found.status == FOUND
    assert found.fewest == "3 rounds do not give one rank what it needs, by branch and bound"
    assert task.solve(3, 2, 3).status == IMPOSSIBLE  # which is true
    assert task.solve(3, 2, 5).fewest is None  # of five rounds nothing proves that they are the fewest


@pytest.mark.parametrize("method", methods(), ids=lambda method: type(method).__name__)
def test_each_method_decides_an_instance_alone(solvers: Solvers, method: Method) -> None:
    """Every method that the session finds has a row."""
    network, name, chunks, steps, rounds, status, how = DECIDES[type(method).__name__]
    wanted = demand.builtin(name, network.ranks, chunks)
    answer = method.decide(Instance(session(solvers, network), wanted, steps, rounds))
    assert answer is not None
    assert (answer.status, how in answer.how) == (status, True), answer
    if answer.schedule is not None:
        check(network, wanted, answer.schedule)
        assert answer.schedule.total_rounds <= rounds
        assert len(answer.schedule.steps) <= steps


def test_every_row_is_of_a_method() -> None:
    assert {type(method).__name__ for method in methods()} == DECIDES.keys()
    assert len({method.cost for method in methods()}) == len(methods())  # else names of files say who is first
