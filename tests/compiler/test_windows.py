"""Programs that post their messages as MPI programs do: in the order of the algorithm, a window at a time."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest
from click.testing import CliRunner

import gc3
from gc3 import sim
from gc3.algorithms import load
from gc3.cli.main import main
from gc3.runtime.checking import Case
from gc3.runtime.program import Program

PROGRAMS: list[tuple[str, dict[str, Any]]] = [
    ("scatter_destination_alltoall", {"R": 5}),
    ("pairwise_alltoall", {"R": 4}),
    ("eager_pairwise_alltoall", {"N": 2, "G": 3}),
    ("hierarchical_alltoall", {"N": 3, "G": 2}),
    ("two_step_alltoall", {"N": 2, "G": 2}),
    ("ring_allreduce", {"R": 4}),
    ("hierarchical_allreduce", {"N": 2, "G": 2}),
    ("binomial_scatter", {"R": 6}),
]


def compiled(name: str, parameters: dict[str, Any], window: int, *, instances: int = 1) -> Program:
    return gc3.compile(load(name), window=window, instances=instances, **parameters)


@pytest.mark.parametrize("window", [1, 2, 3, 100])
@pytest.mark.parametrize(("name", "parameters"), PROGRAMS)
def test_a_program_with_windows_is_proven_runs_and_needs_no_buffers(
    name: str, parameters: dict[str, Any], window: int
) -> None:
    program = compiled(name, parameters, window, instances=2)
    assert program.verify().ok
    case = Case(program.collective, 1000, "int32")
    inputs = case.inputs()
    outputs = program.run(inputs, outputs=case.poisoned_outputs(), count=1000, dtype="int32")
    assert case.compare(inputs, outputs).ok
    # By rendezvous no message is sent before its receive is reached, so this order of messages must not need that.
    machine = sim.platform(f"fully_connected:R={program.collective.ranks}", "mvapich2-gdr")
    assert sim.Simulation(program, machine).run(64 << 20).time_s > 0


@pytest.mark.parametrize("window", [1, 2, 4])
def test_no_rank_has_more_messages_under_way_than_the_window(window: int) -> None:
    """Of the recorded operations of a simulation, at any time."""
    program = compiled("scatter_destination_alltoall", {"R": 9}, window)
    found = sim.Simulation(program, sim.platform("fully_connected:R=9", "mvapich2-gdr")).run(9 << 20, explain=True)
    assert found.explanation is not None
    records = found.explanation.records
    ranks = [r for r, rank in enumerate(program.core.as_dict()["ranks"]) for _ in rank["threadblocks"]]
    most = 0
    for rank in range(9):
        sends = [k for k in range(len(records["tb"])) if ranks[records["tb"][k]] == rank and records["sends"][k]]
        spans = {(records["tb"][k]): (records["start"][k], records["end"][k]) for k in sends}
        for start, _ in spans.values():
            most = max(most, sum(s <= start < e for s, e in spans.values()))
    assert most == window


def test_the_order_is_that_of_the_algorithm() -> None:
    program = compiled("scatter_destination_alltoall", {"R": 7}, 3)
    for rank, about in enumerate(program.core.as_dict()["ranks"]):
        peers = [(tb["send_peer"] - rank) % 7 for tb in about["threadblocks"] if tb["send_peer"] is not None]
        assert peers == [1, 2, 3, 4, 5, 6]


def test_windows_are_named_as_such() -> None:
    with pytest.raises(gc3.UserError, match="window"):
        compiled("ring_allreduce", {"R": 2}, -1)
    runner = CliRunner()
    shown = runner.invoke(main, ["show", "scatter_destination_alltoall:R=4,window=1"])
    assert shown.exit_code == 0, shown.output
    assert len(re.findall(r"\bnop\b", shown.output)) >= 2 * 4
    refused = runner.invoke(main, ["show", "ring_allreduce:R=2,window=0"])
    assert refused.exit_code != 0
    assert "'window=0' of" in refused.output


def test_a_smaller_window_is_not_faster_on_an_idle_network() -> None:
    """Of small messages between equal ranks, where waiting is all that differs."""
    on = sim.platform("lassen:N=4", "mvapich2-gdr")
    times = [
        sim.Simulation(compiled("scatter_destination_alltoall", {"R": 16}, window), on).run(16 << 10).time_s
        for window in (100, 4, 2, 1)
    ]
    assert all(wide < narrow for wide, narrow in itertools.pairwise(times))
