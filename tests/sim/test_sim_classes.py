"""Programs of which one rank stands for all, simulated by classes of ranks: the times of the program of all ranks."""

from __future__ import annotations

from typing import Any

import pytest

from gc3 import sim
from gc3.lang import Algorithm, compile
from gc3.runtime.classes import ClassProgram
from gc3.runtime.program import Program
from one_rank_programs import (
    allpairs_allreduce,
    hierarchical_allreduce,
    hierarchical_reducescatter,
    recursive_halving_doubling_allreduce,
    ring_allgather,
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
    (hierarchical_reducescatter, NODES, "ndv4:N=4", 1),
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


def _both(form: Algorithm, parameters: dict[str, Any], machine: str, **how: Any) -> tuple[sim.Simulation, ...]:
    made = compile(form, **{**how, **parameters})
    assert isinstance(made, ClassProgram)
    on = sim.platform(machine)
    return sim.Simulation(made, on), sim.Simulation(Program(made.classes.expand()), on)


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
