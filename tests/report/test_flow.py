"""The messages of a program step by step: which step they belong to, and who sends what to whom, told once."""

from __future__ import annotations

import pytest

from gc3 import sim, topologies
from gc3.comm.spec import Spec
from gc3.report import flow
from gc3.report.alike import Flow, alike
from gc3.sim import Simulation, run_timeline


def _flow(name: str, machine: str, **parameters: int) -> Flow:
    on = sim.platform(topologies.load(machine))
    program = Spec(name, tuple(parameters.items())).compile(on.topology.rank_count)
    simulation = Simulation(program, on)
    return flow.flow(run_timeline.simulated(simulation, simulation.run(1 << 20, explain=True)))


@pytest.mark.parametrize(
    ("name", "parameters", "steps"),
    [
        # A ring in each node, a step between nodes, and back; the latter waits for the last slice of the former.
        (
            "hierarchical_allreduce",
            {"N": 2, "G": 8},
            [
                *[["every rank → the next rank of the node"]] * 7,
                *[["every rank → the same rank of the other node"]] * 2,
                *[["every rank → the next rank of the node"]] * 7,
            ],
        ),
        (
            "ring_allreduce",
            {"R": 16},
            [["ranks 0-6 of each node → the next rank of the node", "rank 7 → 8", "rank 15 → 0"]] * 30,
        ),
        (
            "two_step_alltoall",
            {"N": 2, "G": 8},
            [
                ["every rank → all others of its node"],
                ["every rank → all others of its node", "every rank → the same rank of the other node"],
            ],
        ),
    ],
)
def test_messages_that_are_alike_are_told_once(name: str, parameters: dict[str, int], steps: list[list[str]]) -> None:
    made = _flow(name, "ndv4:N=2", **parameters)
    found = [alike(made, number) for number in range(made.rounds)]
    assert [[told for told, _ in step] for step in found] == steps
    assert sum(len(some) for step in found for _, some in step) == len(made.moves)


def test_partners_are_told_where_that_says_more() -> None:
    made = _flow("recursive_halving_doubling_allreduce", "ndv4", R=8)
    assert made.rounds == 6
    assert [told for told, _ in alike(made, 1)] == ["every rank → the rank of its number xor 2"]


def test_nodes_are_rows_that_are_marked() -> None:
    drawn = flow.draw(_flow("hierarchical_allreduce", "ndv4:N=2", N=2, G=8), head="x")
    assert drawn.count(">node0<") == drawn.count(">node1<") == 16  # in each step
    assert ">node0<" not in flow.draw(_flow("ring_allreduce", "ndv4", R=8), head="x")


@pytest.mark.parametrize(
    ("name", "parameters", "machine", "arrows", "told"),
    [
        (
            "allpairs_allreduce",
            {"R": 16},
            "fully_connected:R=16",
            [15, 15],
            "every rank → all others: of 240 messages, ",
        ),
        ("two_step_alltoall", {"N": 2, "G": 8}, "ndv4:N=2", [7, 7 + 16], "every rank → all others of its node: of 112"),
        ("ring_allreduce", {"R": 16}, "fully_connected:R=16", [16] * 30, ""),
    ],
)
def test_of_many_messages_that_are_alike_one_ranks_are_drawn(
    name: str, parameters: dict[str, int], machine: str, arrows: list[int], told: str
) -> None:
    made = _flow(name, machine, **parameters)
    for alone, step in ((True, f'<g transform="translate(0 {48 if told else 24})">'), (False, '<g class="round"')):
        drawn = flow.draw(made, alone=alone, head="x" if alone else "")
        assert [part.count("url(#head)") for part in drawn.split(step)[1:25]] == arrows[:24]
        assert (" are drawn</text>" in drawn) == bool(told)
        assert told in drawn
