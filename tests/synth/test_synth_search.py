"""The search itself: which candidates are still worth trying, what proves the fewest rounds, what is cached."""

from __future__ import annotations

import math

import pytest

from gc3.synth import FOUND, IMPOSSIBLE, OPEN, Solvers, Task
from gc3.synth.outcome import Outcome
from gc3.synth.tried import Tried
from small_networks import random_network, session

pytestmark = pytest.mark.python_only


def outcome(status: str) -> Outcome:
    return Outcome(status, None, "", None, 0.0)


def test_what_is_impossible_refutes_more_chunks_and_fewer_rounds_alone() -> None:
    """(R, C): if three chunks need more than four rounds, so do four, and three need more than three; two may not."""
    candidates = [(rounds, chunks) for rounds in range(2, 7) for chunks in range(1, 6)]
    tried = Tried(candidates)
    tried.note((4, 3), outcome(IMPOSSIBLE))
    assert {c for c in candidates if not tried.matters(c)} == {(r, c) for r in (2, 3, 4) for c in (3, 4, 5)}
    tried.note((5, 5), outcome(IMPOSSIBLE))
    assert {c for c in candidates if not tried.matters(c)} == {(r, c) for r in (2, 3, 4) for c in (3, 4, 5)} | {(5, 5)}


def test_what_is_open_stays_so_until_it_is_decided_or_refuted() -> None:
    tried = Tried([(3, 3), (3, 2), (2, 1), (4, 1)])
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
