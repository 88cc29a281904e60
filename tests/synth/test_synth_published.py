"""The optima that other synthesizers publish for their machines are reached by packed trees."""

from __future__ import annotations

import pytest

from gc3 import topologies
from gc3.synth import Network, Session, Solvers
from gc3.synth.methods import tree_packing
from gc3.synth.problem import demand
from gc3.topologies import Builder, LinkClass, Port, Topology
from small_networks import AMPLE

pytestmark = pytest.mark.python_only

NVLINK, INFINIBAND = LinkClass("nvlink", 125e9, source="TE-CCL"), LinkClass("infiniband", 12.5e9, source="TE-CCL")


def te_ccl_dgx2() -> Topology:
    """Two DGX-2 as TE-CCL has them: one switch in each, and the odd GPUs linked to an even one of the other."""
    build = Builder("te_ccl_dgx2")
    ranks = [[build.rank(f"node{n}.gpu{g}", node=n) for g in range(16)] for n in range(2)]
    for n, members in enumerate(ranks):
        ends = [build.duplex(f"node{n}.gpu{g}", "egress", NVLINK) for g in range(16)]
        build.fabric(f"node{n}", NVLINK, [Port(r, e[:1], e[1:]) for r, e in zip(members, ends, strict=True)])
    for here, there in (ranks, ranks[::-1]):
        for g in range(1, 16, 2):
            build.link(here[g], there[g - 1], INFINIBAND)
    return build.build()


# GB/s of the AllGather: bytes of the output by time (ForestColl's tables; its own code, and TE-CCL's topology files).
@pytest.mark.parametrize(
    ("machine", "published"),
    [("ndv4:N=2", "346.67"), ("mi250", "342.86"), ("mi250:N=2", "354.13"), ("two DGX-2 of TE-CCL", "129.03")],
)
def test_the_optimum_of_forestcoll(machine: str, published: str) -> None:
    on = te_ccl_dgx2() if machine.startswith("two") else topologies.load(machine)
    network = Network.of(on, 1e9)
    wanted = demand.builtin("allgather", network.ranks, 1)
    with Solvers() as solvers:
        bound = Session(network, solvers).any_steps(wanted).rounds
    assert f"{float(network.ranks / bound):.2f}" == published
    forest = tree_packing.best(network, wanted, bound, AMPLE)
    assert forest is not None
    assert forest.ratio == bound
