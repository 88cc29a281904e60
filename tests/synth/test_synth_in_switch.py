"""Schedules in which switches multicast chunks and add them up, as those of `ndv5` do."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import pytest
from click.testing import CliRunner

import gc3
from gc3 import errors, sim, topologies
from gc3.cli.main import main
from gc3.synth import FOUND, IMPOSSIBLE, OPEN, Network, Outcome, Result, Schedule, Session, Solvers, Task, result
from gc3.synth.problem.demand import builtin_problem
from own_bounds import Machine, replay

pytestmark = pytest.mark.python_only

SPREADING = ("allgather", "broadcast")
REDUCING = ("reducescatter", "reduce", "allreduce")
LANES = 18  # of a port of ndv5


def switch(ranks: int, capacity: int = 1, *, switched: bool = True) -> Network:
    """Ranks with ports of so many chunks in a round to a switch that multicasts and adds up."""
    relation = [(tuple((r, d) for d in range(ranks) if d != r), capacity) for r in range(ranks)]
    relation += [(tuple((s, r) for s in range(ranks) if s != r), capacity) for r in range(ranks)]
    out, into = (range(ranks), range(ranks, 2 * ranks)) if switched else ((), ())
    return Network.of_relation("switch", ranks, relation, sent_once=out, received_once=into)


def task(network: Network, name: str, solvers: Solvers) -> Task:
    return Task(Session(network, solvers), name)


def made(outcome: Outcome) -> Result:
    assert outcome.result is not None
    network, schedule = outcome.result.network, outcome.result.schedule
    relation = tuple((tuple(network.edges[e] for e in m), Fraction(c)) for m, c in network.bounds)
    machine = Machine(network.ranks, relation, network.sent_once, network.received_once)
    of = outcome.result
    replay(machine, of.collective, of.chunks, of.root, schedule.rounds, schedule.steps)
    return of


def test_a_machine_says_which_bounds_carry_messages_as_one() -> None:
    network = Network.of(topologies.load("ndv5:N=2"))
    assert len(network.sent_once) == len(network.received_once) == 16
    ports = [network.bounds[b] for b in network.sent_once]
    assert {(len(members), chunks) for members, chunks in ports} == {(7, LANES)}
    assert all(len({network.edges[e][0] for e in members}) == 1 for members, _ in ports)
    assert network.reversed is network
    assert not Network.of(topologies.load("ndv4")).in_switch
    turned = replace(network, received_once=frozenset()).reversed
    assert (turned.sent_once, len(turned.received_once)) == (frozenset(), 16)


@pytest.mark.parametrize(("name", "rounds"), [("allgather", 7), ("broadcast", 1), ("reduce", 1), ("reducescatter", 7)])
def test_one_step_takes_the_rounds_of_the_bound(name: str, rounds: int, solvers: Solvers) -> None:
    """Every chunk leaves a port once, and every sum enters one once, in the fewest rounds that any algorithm takes."""
    wanted = task(Network.of(topologies.load("ndv5")), name, solvers)
    chunks = 16 * wanted.unit
    for outcome in (wanted.pipelined(chunks), wanted.least_rounds(chunks, 1)):
        found = made(outcome)
        assert found.cost == (chunks, 1, rounds)
        assert rounds == math.ceil(wanted.any_steps().rounds * chunks)
        program = found.program()
        program.verify()
        assert program.core.in_switch


def test_an_allreduce_comes_near_the_bound(solvers: Solvers) -> None:
    """All data leaves and enters each GPU once. Plain messages take 7/4 of that."""
    wanted = task(Network.of(topologies.load("ndv5")), "allreduce", solvers)
    found = made(wanted.pipelined(512))
    bound = wanted.any_steps().rounds * 512
    assert bound == Fraction(512, LANES)
    assert found.cost[2] <= 1.06 * bound
    program = found.program(max_threadblocks=132)
    program.verify()
    took = [sim.Simulation(program, on).run(1 << 30).time_s for on in (sim.platform("ndv5"), plain_ndv5())]
    assert took[0] < 0.8 * took[1]


def plain_ndv5() -> sim.Platform:
    shape = topologies.load("ndv5")
    return sim.platform(replace(shape, classes=tuple(replace(c, multicast_efficiency=0.0) for c in shape.classes)))


@pytest.mark.parametrize("name", SPREADING + REDUCING)
def test_parts_inside_nodes_use_the_switch(name: str, solvers: Solvers) -> None:
    wanted = task(Network.of(topologies.load("ndv5:N=2")), name, solvers)
    for overlapped in (False, True):
        found = made(wanted.hierarchical(2 * wanted.unit, overlapped=overlapped))
        program = found.program()
        program.verify()
        text = program.core.to_text()
        assert (" multicast " in text) == (name in (*SPREADING, "allreduce"))
        assert (" reduction " in text) == (name in REDUCING)


@pytest.mark.parametrize(
    ("name", "chunks"), [("broadcast", 24), ("reduce", 24), ("allgather", 16), ("reducescatter", 64)]
)
def test_the_simulator_counts_the_same_rounds(name: str, chunks: int, solvers: Solvers) -> None:
    found = made(task(Network.of(topologies.load("ndv5")), name, solvers).least_rounds(chunks, 1))
    program = gc3.compile(found.algorithm(step_channels=True))
    counted = sim.Simulation(program, sim.platform("ndv5")).alpha_beta(1 << 20)
    assert (counted.steps, counted.rounds) == found.cost[1:]


def test_a_multicast_to_two_boards_leaves_its_port_once(solvers: Solvers) -> None:
    shape = topologies.load("dgx2")
    classes = tuple(replace(c, multicast_efficiency=0.8 if c.name == "nvlink2" else 0.0) for c in shape.classes)
    machine = replace(shape, classes=classes)
    for name in ("broadcast", "reduce"):
        found = made(task(Network.of(machine), name, solvers).least_rounds(6, 1))  # a port carries six in a round
        program = gc3.compile(found.algorithm(step_channels=True))
        counted = sim.Simulation(program, sim.platform(machine)).alpha_beta(step_channels=True)
        assert (counted.steps, counted.rounds) == found.cost[1:] == (1, 1)


def test_ports_of_one_chunk_take_turns(solvers: Solvers) -> None:
    """Eight multicasts at once fit in seven rounds, and not in rounds of one multicast each."""
    assert made(task(switch(8), "allgather", solvers).pipelined(1)).cost == (1, 1, 7)


def test_claims_hold_for_any_algorithm_with_the_switch(solvers: Solvers) -> None:
    """What no plain messages do in so few rounds is found, and never called impossible."""
    few = task(switch(3), "broadcast", solvers).solve(2, 1, 2)
    assert (few.status, few.fewest) == (FOUND, "what must leave rank 0")
    assert task(switch(3, switched=False), "broadcast", solvers).solve(2, 1, 2).status == IMPOSSIBLE
    refuted = task(switch(3), "broadcast", solvers).solve(2, 1, 1)
    assert (refuted.status, refuted.how) == (IMPOSSIBLE, "what must leave rank 0 takes 2 rounds")
    # One NIC of a node carries what two of its ranks receive, whether or not a switch multicasts it.
    nic = [*switch(4, 3).bounds, (tuple(e for e, (a, b) in enumerate(switch(4).edges) if a < 2 <= b), 1)]
    behind = replace(switch(4, 3), bounds=tuple(nic))
    undecided = task(behind, "broadcast", solvers).solve(1, 1, 1)
    assert undecided.status == OPEN
    assert "not all in which switches multicast" in undecided.how
    found = task(behind, "broadcast", solvers).least_rounds(1, 1)
    assert (made(found).cost, found.fewest) == ((1, 1, 2), None)


def test_only_what_a_switch_carries_as_one_counts_once() -> None:
    network, problem = switch(3), builtin_problem("broadcast", 3, 2)
    result.whole(network, problem, Schedule((1, 1), (((0, 0, 1), (0, 0, 2)), ((1, 0, 1), (1, 0, 2)))))
    with pytest.raises(errors.InternalError, match="sends 2 chunks where 1 fit: from 0"):
        result.whole(network, problem, Schedule((1,), (((0, 0, 1), (1, 0, 2)),)))
    reduced = builtin_problem("reduce", 3, 1)
    result.whole(network, reduced, Schedule((1,), (((0, 1, 0), (0, 2, 0)),)))
    both = builtin_problem("allreduce", 3, 3)
    # Rank 0 gets the sum from two ranks: these messages replace what it has, and are not added up.
    sums = tuple((c, src, dst) for c in range(3) for dst in (1,) for src in (0, 2))
    spread = tuple((c, 1, 2) for c in range(3))
    twice = tuple((c, src, 0) for c in range(3) for src in (1, 2))
    result.whole(network, both, Schedule((3, 3, 6), (sums, spread, twice)))
    with pytest.raises(errors.InternalError, match="sends 6 chunks where 3 fit"):
        result.whole(network, both, Schedule((3, 3, 3), (sums, spread, twice)))


def test_the_command_says_nothing_of_plain_messages() -> None:
    found = CliRunner().invoke(main, ["synth", "allgather", "-t", "ndv5", "--steps", "least", "-C", "18"])
    assert found.exit_code == 0, found.output
    assert "plain messages" not in found.output
    assert "R/C = 7/18, the least in 1 step" in found.output
    assert "bandwidth-optimal in any number of steps" in found.output
