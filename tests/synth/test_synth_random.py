"""Random machines, with different bandwidths, switches and shared links: all collectives in all modes.

Some of the switches multicast and add up. Schedules are replayed, and every claimed minimum is compared with linear
programs; both are in `own_bounds`. `make nightly` uses far more machines.
"""

from __future__ import annotations

import contextlib
import math
import random
import time
from fractions import Fraction

import pytest

from gc3 import errors, synth
from gc3.support.alarm import alarm
from gc3.synth import FOUND, IMPOSSIBLE, Network, Outcome, Session, Solvers, Task
from gc3.synth.methods import tree_packing
from own_bounds import ROOTED, Machine, least_ratio, replay

pytestmark = pytest.mark.python_only

COLLECTIVES = synth.NAMES
MACHINES = 8  # times nine collectives, times two modes at least, three where there are rails: some 220 instances
PART = 2  # machines of one test
WALL = 120.0  # seconds for one machine, far more than it needs
CLOSE = 1e-6
ROUNDED = 1e-4  # amounts to whole copies
IN_SWITCH = 0.5  # of the machines
SEARCHED = 3  # up to this many ranks, all methods are used

Pair = tuple[int, int]


def machine_of(seed: int) -> tuple[Machine, tuple[int, ...]]:
    """A machine whose ranks all reach each other, and the nodes of its ranks."""
    chance = random.Random(seed)  # noqa: S311
    ranks = chance.choice((2, 3, 3, 4, 4, 5))
    rates = [Fraction(1), Fraction(1), Fraction(2), Fraction(3), Fraction(3, 2), Fraction(19, 10), Fraction(12)]
    everyone = range(ranks)
    relation: list[tuple[tuple[Pair, ...], Fraction]] = []
    if chance.random() < 0.35:  # all on a switch, with separate ports
        for r in everyone:
            relation.append((tuple((r, d) for d in everyone if d != r), chance.choice(rates)))
            relation.append((tuple((s, r) for s in everyone if s != r), chance.choice(rates)))
    else:
        pairs = {(r, (r + 1) % ranks) for r in everyone}
        pairs |= {(a, b) for a in everyone for b in everyone if a != b and chance.random() < 0.4}
        if chance.random() < 0.5:
            pairs |= {(b, a) for a, b in pairs}
        relation = [((pair,), chance.choice(rates)) for pair in sorted(pairs)]
    nodes = tuple(int(r >= ranks // 2) for r in everyone)
    known = sorted({pair for pairs, _ in relation for pair in pairs})
    for sending in (0, 1):  # each node's NIC, for data that leaves or reaches it
        for node in (0, 1):
            crossing = tuple(p for p in known if nodes[p[0]] != nodes[p[1]] and nodes[p[sending]] == node)
            if len(crossing) > 1 and chance.random() < 0.4:
                relation.append((crossing, chance.choice(rates)))
    machine = Machine(ranks, tuple(relation))
    if random.Random(-1 - seed).random() < IN_SWITCH:  # noqa: S311
        machine = in_switch(machine)
    return machine, nodes


def in_switch(machine: Machine) -> Machine:
    """The machine whose ranks' ports to a switch send a multicast once, and receive a sum once."""
    ports = [(i, pairs) for i, (pairs, _) in enumerate(machine.relation) if len(pairs) > 1]
    sent, received = (frozenset(i for i, pairs in ports if len({p[end] for p in pairs}) == 1) for end in (0, 1))
    return Machine(machine.ranks, machine.relation, sent, received)


def count_of(config: pytest.Config) -> int:
    return config.getoption("--random-machines") or MACHINES


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    metafunc.parametrize("first", range(0, count_of(metafunc.config), PART))


def test_random_machines(solvers: Solvers, first: int) -> None:
    """The results are correct, and the claims about them are true."""
    for seed in range(first, first + PART):
        with alarm(time.monotonic() + WALL, synth.TimeUp):
            machine, nodes = machine_of(seed)
            network = Network.of_relation(
                f"random {seed}", machine.ranks, machine.relation, nodes,
                sent_once=machine.sent_once, received_once=machine.received_once,
            )  # fmt: skip
            chance = random.Random(seed)  # noqa: S311
            for name in COLLECTIVES:
                root = chance.randrange(machine.ranks) if name in ROOTED else 0
                check_collective(machine, Task(Session(network, solvers, time.monotonic() + WALL / 2), name, root))


def check_collective(machine: Machine, task: Task) -> None:
    name, unit = task.name, task.unit
    ratio = task.any_steps().rounds
    assert float(ratio) <= attainable(machine, name, task.root) * (1 + CLOSE)
    chunks = unit * (1 + len(name) % 3)
    outcomes = [task.pipelined(chunks)]
    if task.network.nodes:
        with contextlib.suppress(errors.UserError):  # there are no rails
            outcomes.append(task.hierarchical(unit))
            outcomes.append(task.hierarchical(chunks, overlapped=True))
    steps = task.least_steps()
    outcomes.append(task.least_rounds(unit, steps))
    if machine.ranks <= SEARCHED:
        outcomes += [p.outcome for p in task.frontier(1, steps + 1)]
    for outcome in outcomes:
        check_outcome(machine, task, outcome)
    found = outcomes[-1].result
    if name == "allreduce":
        check_pairs(machine, task)
    elif found is not None:
        bound = task.in_steps(found.cost[1])
        assert float(bound.rounds) <= max(in_steps(machine, name, task.root, found.cost[1]), float(ratio)) * (1 + CLOSE)
    fewer = math.ceil(ratio * unit) - 1
    if fewer >= steps:
        assert task.solve(unit, steps, fewer).status == IMPOSSIBLE


def check_pairs(machine: Machine, task: Task) -> None:
    """Pairs of trees with free roots are no worse than with equal parts on all ranks, or with a single root."""
    group = task.session.group(task.problem(task.unit).demands[-1])
    found = tree_packing.best_pairs(task.network, group, task.session.solvers, WALL / 4)
    assert found is not None
    assert task.any_steps().rounds <= found.ratio
    assert float(found.ratio) <= attainable(machine.plain, task.name, 0) * (1 + ROUNDED)
    schedule = tree_packing.schedule_of_pairs(task.network, 5 * machine.ranks, found, WALL / 4)
    replay(machine, task.name, 5 * machine.ranks, 0, schedule.rounds, schedule.steps)


def check_outcome(machine: Machine, task: Task, outcome: Outcome) -> None:
    assert outcome.status == FOUND, outcome
    assert outcome.result is not None
    chunks, steps, rounds = outcome.result.cost
    schedule = outcome.result.schedule
    replay(machine, task.name, chunks, task.root, schedule.rounds, schedule.steps)
    # No result is below a bound, ours or the reference's.
    ratio = Fraction(rounds, chunks)
    assert ratio >= task.any_steps().rounds
    assert rounds >= task.of_chunks(chunks).rounds
    assert steps >= task.any_algorithm_steps()
    if task.name != "allreduce":
        assert float(ratio) >= least_ratio(machine, task.name, task.root) * (1 - CLOSE)
        assert ratio >= task.in_steps(steps).rounds
        if outcome.fewest is not None and "branch and bound" not in outcome.fewest and "flow" not in outcome.fewest:
            fewer = (rounds - 1) * (1 + CLOSE)
            assert rounds == task.least_steps() or fewer < chunks * in_steps(machine, task.name, task.root, steps)


def in_steps(machine: Machine, name: str, root: int, steps: int) -> float:
    return least_ratio(machine, name, root, steps)


def attainable(machine: Machine, name: str, root: int) -> float:
    """An R/C that schedules can approach, so that no valid bound is above it."""
    if name != "allreduce":
        return least_ratio(machine, name, root)
    halves = least_ratio(machine, "allgather", 0) / machine.ranks + least_ratio(machine, "reducescatter", 0)
    over = [least_ratio(machine, "reduce", r) + least_ratio(machine, "broadcast", r) for r in range(machine.ranks)]
    return min(halves, *over)
