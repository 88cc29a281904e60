"""The bound of the links, beside which `gc3 synth best` shows its programs."""

from __future__ import annotations

import math

import pytest

from gc3 import algorithms, collectives, compile, errors, sim, synth
from gc3.tune.best import Best
from gc3.tune.bound import LinkBound, floors, link_bound
from gc3.tune.guided_search import MOST, Search

pytestmark = pytest.mark.python_only


def bound(machine: str, collective: str, root: int = 0) -> LinkBound:
    with synth.Solvers() as solvers:
        return link_bound(sim.platform(machine), collective, root, solvers, math.inf)


@pytest.mark.parametrize(
    ("machine", "collective", "seconds_per_byte"),
    [
        # A GPU's six NVLinks, of which Simple reaches 98 % of what kernels do.
        ("dgx1", "allgather", 7 / 8 / (6 * 0.98 * 20e9)),
        ("dgx1", "broadcast", 1 / (6 * 0.98 * 20e9)),
        ("dgx2", "alltoall", 15 / 16 / (6 * 0.98 * 20e9)),
        ("dgx2", "allreduce", 2 * 15 / 16 / (6 * 0.98 * 20e9)),
        # All of S leaves a rank whose switches add up and multicast; without them, 2 (n-1)/n of it.
        ("ndv5", "allreduce", 1 / (0.986 * 0.824 * 450e9)),
        ("ndv4", "allreduce", 2 * 7 / 8 / (0.98 * 12 * 20e9)),
        # A NIC carries what its GPUs need of the other node.
        ("ndv2:N=2", "allgather", 1 / 2 / 9.5e9),
        ("ndv4:N=4", "alltoall", 24 / 32 / (0.95 * 25e9)),
    ],
)
def test_bounds_by_hand(machine: str, collective: str, seconds_per_byte: float) -> None:
    assert bound(machine, collective).seconds_per_byte == pytest.approx(seconds_per_byte)


@pytest.mark.parametrize("machine", ["dgx1", "dgx2", "ndv4"])
@pytest.mark.parametrize("name", ["ring_allgather", "direct_allgather", "allpairs_allreduce", "direct_alltoall"])
def test_no_program_is_below_it(machine: str, name: str) -> None:
    on = sim.platform(machine)
    algorithm = algorithms.load(name)
    least = bound(machine, collectives.get(algorithm.collective_name).name)
    for protocol in ("Simple", "LL", "LL128"):
        try:
            program = compile(algorithm, R=on.topology.rank_count, instances=2, protocol=protocol)
            took = sim.Simulation(program, on).run(1 << 28).time_s
        except errors.UserError:  # there is no path
            continue
        assert took > least.seconds_per_byte * (1 << 28)


@pytest.mark.parametrize("collective", ["alltoall", "allreduce", "broadcast"])
def test_what_each_protocol_takes_at_least_is_known_without_a_search(collective: str) -> None:
    simple, low, other = floors(sim.platform("dgx2"), collective, 0, ("Simple", "LL", "none"))
    assert simple == pytest.approx(bound("dgx2", collective).seconds_per_byte)  # NICs carry nothing inside a node
    assert low > 2 * simple
    assert other == 0


def test_a_search_ends_where_no_program_can_be_faster() -> None:
    on, size = sim.platform("fully_connected:R=4"), 1 << 30
    tried, count = Search("alltoall", on, 4, in_place=False).fastest(size)
    assert tried[0][1] < 1.005 * floors(on, "alltoall", 0, ("Simple",))[0] * size
    assert 0 < count < MOST // 2
    with synth.Solvers() as solvers:
        best = Best("alltoall", on)
        best.run(solvers, 0, [size], 60.0, lambda _: None)
    assert best.searched == {size}
    assert not best.schedules
