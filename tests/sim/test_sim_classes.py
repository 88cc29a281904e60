"""Programs of which one rank stands for all, simulated by classes of ranks: the times of the program of all ranks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gc3 import sim
from gc3.cli.main import main
from gc3.lang import Algorithm, algorithm, chunk, compile, me
from gc3.runtime.classes import ClassProgram
from one_rank_programs import (
    allpairs_allreduce,
    hierarchical_allreduce,
    hierarchical_reducescatter,
    rail_allgather,
    recursive_halving_doubling_allreduce,
    ring_allgather,
    two_level_ring_allgather,
    two_step_alltoall,
)

NODES: dict[str, Any] = {"N": 4, "G": 8}
CASES: list[tuple[Algorithm, dict[str, Any], str, int]] = [  # and how many classes of ranks there are
    (hierarchical_allreduce, NODES, "hierarchical:N=4,G=8,nics=8", 1),
    (hierarchical_allreduce, NODES, "hierarchical:N=4,G=8,nics=4", 2),
    (hierarchical_allreduce, NODES, "hierarchical:N=4,G=8", 8),
    (hierarchical_allreduce, NODES, "ndv4:N=4", 1),
    (hierarchical_allreduce, NODES, "ndv5:N=4", 1),
    (hierarchical_allreduce, NODES, "dgx_h100:N=4", 1),
    (hierarchical_allreduce, {"N": 2, "G": 16}, "dgx2:N=2", 8),
    (hierarchical_allreduce, NODES, "infiniband_hosts:N=4,G=8", 8),
    (hierarchical_allreduce, NODES, "torus:X=8,Y=4", 1),
    (hierarchical_allreduce, NODES, "fat_tree:R=32,leaf=8", 8),
    (hierarchical_reducescatter, NODES, "ndv4:N=4", 1),
    (rail_allgather, NODES, "mi300x:N=4", 1),
    (two_level_ring_allgather, {"N": 8, "G": 4}, "gb200_nvl72:N=1,G=32", 1),
    (hierarchical_allreduce, {"N": 8, "G": 4}, "hierarchical:N=8,G=4,rack=4", 16),
    (two_step_alltoall, NODES, "ndv4:N=4", 1),
    (two_step_alltoall, NODES, "hierarchical:N=4,G=8,nics=4", 2),
    (two_step_alltoall, {"N": 4, "G": 4}, "lassen:N=4", 2),
    (two_step_alltoall, {"N": 4, "G": 6}, "summit:N=4", 3),
    (allpairs_allreduce, {"R": 16}, "fully_connected:R=16", 1),
    (allpairs_allreduce, {"R": 8}, "mi300x", 1),
    (ring_allgather, {"R": 16}, "ring:R=16", 1),
    (recursive_halving_doubling_allreduce, {"R": 16}, "hypercube:D=4", 1),
    (recursive_halving_doubling_allreduce, {"R": 16}, "fully_connected:R=16", 1),
]


def _made(form: Algorithm, **how: Any) -> ClassProgram:
    made = compile(form, memory="fifo", **how)
    assert isinstance(made, ClassProgram)
    return made


def _both(form: Algorithm, parameters: dict[str, Any], machine: str, **how: Any) -> tuple[sim.Simulation, ...]:
    made, on = _made(form, **how, **parameters), sim.platform(machine)
    return sim.Simulation(made, on), _apart(made, on)


def _apart(made: ClassProgram, on: sim.Platform) -> sim.Simulation:
    simulation = sim.Simulation(made, on)
    simulation.core = simulation.whole  # each rank
    assert simulation.fifo.ranks == made.ranks
    return simulation


@pytest.mark.parametrize(("form", "parameters", "machine", "classes"), CASES, ids=str)
def test_classes_take_the_times_of_all_ranks(
    form: Algorithm, parameters: dict[str, Any], machine: str, classes: int
) -> None:
    for protocol in ("Simple", "LL128"):
        if protocol not in sim.platform(machine).parameters.protocols:
            continue
        one, whole = _both(form, parameters, machine, protocol=protocol)
        assert one.fifo.ranks == classes
        for size in (1 << 12, 3 << 20):
            found, expected = one.run(size), whole.run(size)
            assert found.time_s == expected.time_s
            assert found.bound_s == expected.bound_s
            assert found.slice_ops * len(one.ranks) == expected.slice_ops * classes


@algorithm("alltoall")
def direct_alltoall(N: int, G: int) -> None:
    node, gpu = me(N, G)
    for a in range(N):
        for b in range(G):
            chunk((node, gpu), "in", (node + a, gpu + b)).copy((node + a, gpu + b), "out", (node, gpu))


def test_ranks_that_meet_at_a_link_in_another_order_are_not_of_one_class() -> None:
    # GPUs 1 and 2 send to the NIC of GPUs 2 and 3 at once, as GPUs 3 and 0 do to that of 0 and 1.
    one, whole = _both(direct_alltoall, {"N": 4, "G": 4}, "hierarchical:N=4,G=4,nics=2")
    assert one.fifo.ranks == 4
    assert "whose order differs from copy to copy" in one.alike
    for size in (1 << 12, 3 << 20):
        assert one.run(size).time_s == whole.run(size).time_s


def test_a_machine_that_differs_somewhere_is_told_and_simulated_in_full() -> None:
    made = _made(hierarchical_allreduce, **NODES)
    on = sim.platform("ndv4:N=4")
    worn = replace(on, slower=(("node2.nic3.in", 0.5),))
    one, whole = sim.Simulation(made, worn), _apart(made, worn)
    assert one.fifo.ranks == 32
    assert "node2.nic3.in" in one.alike
    assert "have different rates" in one.alike
    assert one.run(1 << 20).time_s == whole.run(1 << 20).time_s
    assert sim.Simulation(made.whole, on).alike == ""


def test_ranks_that_are_disturbed_are_all_simulated() -> None:
    one, whole = _both(hierarchical_allreduce, NODES, "ndv4:N=4")
    late = sim.Disturbance({5: 1e-4}, {9: 1.5})
    plain = sim.Simulation(_made(hierarchical_allreduce, **NODES).whole, one.platform)
    for disturbance in (late, sim.Disturbance()):  # other programs have another order at equal times
        expected = plain.run(1 << 20, disturbance=disturbance).time_s
        assert one.run(1 << 20, disturbance=disturbance).time_s == pytest.approx(expected, rel=0.01)
    assert one.run(1 << 16, sharing="max-min").time_s == whole.run(1 << 16, sharing="max-min").time_s
    part = range(8, 40)
    on = sim.platform("ndv4:N=8")
    made = _made(hierarchical_allreduce, **NODES)
    assert sim.Simulation(made, on, ranks=part).fifo.ranks == 1
    assert sim.Simulation(made, on, ranks=part).run(1 << 20).time_s == one.run(1 << 20).time_s
    parts = [sim.Part(sim.Simulation(p, on, ranks=part), 1 << 20) for p in (made, made.whole)]
    shared = [sim.together(on, [each, each]) for each in parts]
    assert shared[0].time_s == pytest.approx(shared[1].time_s, rel=0.01)


def test_an_explained_run_adds_up_over_all_ranks() -> None:
    one, whole = (s.run(1 << 20, explain=True) for s in _both(two_step_alltoall, NODES, "hierarchical:N=4,G=8"))
    assert one.explanation is not None
    assert whole.explanation is not None
    assert one.explanation.work_s == pytest.approx(whole.explanation.work_s)
    assert sum(one.explanation.stalls.values()) == pytest.approx(sum(whole.explanation.stalls.values()))
    assert sum(one.explanation.causes.values()) == pytest.approx(one.time_s)
    assert one.use == whole.use


def test_commands_take_such_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = _made(hierarchical_allreduce, **NODES)
    made.save("h.gc3")

    def said(line: str) -> str:
        result = CliRunner().invoke(main, line.split(), catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.output

    assert "32 ranks in 1 class on ndv4" in said("sim h.gc3 -t ndv4:N=4 -b 1MiB -e 1MiB")
    assert "20 messages" in said("trace h.gc3 -t ndv4:N=4 --size 64KiB -o t.json")
    assert "46 steps" in said("trace h.gc3 -t ndv4:N=4 --size 64KiB --only 3,9 -o t.json --picture t.svg")
    assert "open it in a browser" in said("report h.gc3 -t ndv4:N=4 -b 1MiB -e 1MiB -o r.html")
    assert "in 1 class" in said("show h.gc3 --source -t ndv4:N=4")


@pytest.mark.python_only
@pytest.mark.parametrize("nodes", [512, pytest.param(8192, marks=pytest.mark.nightly)])
def test_many_ranks_are_simulated_as_one(nodes: int) -> None:
    on = sim.platform(f"hierarchical:N={nodes},G=8,nics=8")
    simulation = sim.Simulation(compile(hierarchical_allreduce, N=nodes, G=8), on)
    assert simulation.fifo.ranks == 1
    assert simulation.run(1 << 24).slice_ops < 2.5 * nodes
